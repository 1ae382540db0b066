#!/usr/bin/env bash
# Makes dist/quern-VERSION-OS-ARCH.tar.gz: a binary for any processor of that architecture (x86-64-v3 on x86), the
# licences of all that is linked, a bill of materials (SPDX 2.3), and SHA256SUMS over it all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/llama.pin

make -s build PORTABLE=1
name=quern-$(cat version.txt)-$(go env GOOS)-$(go env GOARCH)
out=dist/$name
rm -rf "$out" "$out.tar.gz"
mkdir -p "$out/licences"
cp bin/quern LICENSE NOTICE README.md CHANGELOG.md "$out/"
bin/quern man >"$out/quern.1"
cp third_party/llama.cpp/src/LICENSE "$out/licences/llama.cpp"

modules() { go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/quern | sort -u; }

while read -r path version dir; do
	for file in "$dir"/LICENSE* "$dir"/COPYING*; do
		[ -f "$file" ] && cp "$file" "$out/licences/${path//\//_}-$version" && break
	done
done < <(modules)

{
	printf '{"spdxVersion":"SPDX-2.3","dataLicense":"CC0-1.0","SPDXID":"SPDXRef-DOCUMENT","name":"%s",' "$name"
	printf '"documentNamespace":"urn:quern:%s:%s",' "$name" "$(git rev-parse HEAD)"
	printf '"creationInfo":{"created":"%s","creators":["Tool: scripts/dist.sh"]},"packages":[' "$(git log -1 --format=%cd --date=format:%Y-%m-%dT%H:%M:%SZ)"
	package() { printf '{"SPDXID":"SPDXRef-%s","name":"%s","versionInfo":"%s","downloadLocation":"NOASSERTION"}' "$1" "$2" "$3"; }
	package quern quern "$(cat version.txt)"
	printf ','; package llama-cpp llama.cpp "$LLAMA_TAG"
	n=0
	while read -r path version _; do
		n=$((n + 1))
		printf ','; package "go-$n" "$path" "$version"
	done < <(modules)
	printf ']}\n'
} >"$out/sbom.spdx.json"

(cd "$out" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
tar --sort=name --mtime='@0' --owner=0 --group=0 -C dist -czf "$out.tar.gz" "$name"
sha256sum "$out.tar.gz"
