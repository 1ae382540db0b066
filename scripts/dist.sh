#!/usr/bin/env bash
# Makes dist/quern-VERSION-OS-ARCH.tar.gz: a binary for any processor of that architecture (x86-64-v3 on x86), the
# licences of all that is linked, a bill of materials (SPDX 2.3), and SHA256SUMS over it all.
# From the same commit, compiler and C library it makes the same bytes. It needs GNU tar and coreutils.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/llama.pin
export LC_ALL=C TZ=UTC

die() { printf 'dist: %s\n' "$*" >&2; exit 1; }

[ -z "$(git status --porcelain --untracked-files=no)" ] || die "there are changes that are not committed; a release is made from a commit"

version=$(cat version.txt)
name=quern-$version-$(go env GOOS)-$(go env GOARCH)
out=dist/$name
rm -rf "$out" "$out.tar.gz"
mkdir -p "$out/licences"

build() { # leaves bin and the libraries that third_party points to as they were
	local lib
	lib=$(readlink third_party/llama.cpp/lib || true)
	make -s build PORTABLE=1 BIN="$out/quern"
	[ -z "$lib" ] || ln -sfn "$lib" third_party/llama.cpp/lib
}

# modules lists the Go modules in the binary: path, version, and the folder with their sources.
modules() {
	go version -m "$out/quern" | awk '$1 == "dep" {print $2}' |
		xargs go list -m -f '{{.Path}} {{.Version}} {{.Dir}}'
}

licences() {
	local src=third_party/llama.cpp/src path module dir file found
	cp "$src/LICENSE" "$out/licences/llama.cpp"
	cp "$src/licenses/LICENSE-jsonhpp" "$out/licences/nlohmann-json"
	sed -n '/^\/\/ Copyright/,/^\/\/ SOFTWARE/p' "$src/ggml/src/ggml-cpu/llamafile/sgemm.cpp" | sed 's,^// \?,,' >"$out/licences/llamafile-sgemm"
	cp "$(go env GOROOT)/LICENSE" "$out/licences/go"
	cp scripts/licences/* "$out/licences/"
	while read -r path module dir; do
		found=
		for file in "$dir"/LICENSE* "$dir"/COPYING* "$dir"/NOTICE* "$dir"/ATTRIB* "$dir"/PATENTS*; do
			[ -f "$file" ] || continue
			[ -n "$found" ] || found=$out/licences/${path//\//_}-$module
			{ [ ! -f "$found" ] || echo; cat "$file"; } >>"$found"
		done
		[ -n "$found" ] || die "$path $module comes without a licence"
	done < <(modules)
	find "$out/licences" -size 0 | grep -q . && die "an empty licence in $out/licences"
	true
}

spdx_licence() { # spdx_licence FILE: what kind of licence its text is
	case $(tr -s ' \n\r\t' ' ' <"$1") in
		*"Apache License"*"Permission is hereby granted, free of charge"*) echo "Apache-2.0 AND MIT" ;;
		*"Apache License"*) echo Apache-2.0 ;;
		*"Permission is hereby granted, free of charge"*"Neither the name"*) echo "MIT AND BSD-3-Clause" ;;
		*"CC0 1.0 Universal"*) echo CC0-1.0 ;;
		*"Redistribution and use in source"*"Neither the name"*) echo BSD-3-Clause ;;
		*"Redistribution and use in source"*) echo BSD-2-Clause ;;
		*"Permission is hereby granted, free of charge"* | *"Permission to use, copy, modify"*) echo MIT ;;
		*) echo NOASSERTION ;;
	esac
}

package() { # package ID NAME VERSION LICENCE [PURL]
	printf '{"SPDXID":"SPDXRef-%s","name":"%s","versionInfo":"%s","downloadLocation":"NOASSERTION","filesAnalyzed":false,' "$1" "$2" "$3"
	printf '"licenseConcluded":"NOASSERTION","licenseDeclared":"%s","copyrightText":"NOASSERTION"' "$4"
	[ -z "${5:-}" ] || printf ',"externalRefs":[{"referenceCategory":"PACKAGE-MANAGER","referenceType":"purl","referenceLocator":"%s"}]' "$5"
	printf '}'
}

bill() {
	local n=0 path module _ ids=(llama-cpp nlohmann-json sqlite go-std)
	printf '{"spdxVersion":"SPDX-2.3","dataLicense":"CC0-1.0","SPDXID":"SPDXRef-DOCUMENT","name":"%s",' "$name"
	printf '"documentNamespace":"https://spdx.org/spdxdocs/%s-%s",' "$name" "$(git rev-parse HEAD)"
	printf '"creationInfo":{"created":"%s","creators":["Tool: scripts/dist.sh"]},"packages":[' "$(git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"
	package quern quern "$version" Apache-2.0
	printf ','; package llama-cpp llama.cpp "$LLAMA_TAG" MIT "pkg:github/ggml-org/llama.cpp@$LLAMA_TAG"
	printf ','; package nlohmann-json nlohmann/json "$(json_version)" MIT
	printf ','; package sqlite SQLite "$("$out/quern" version --json | sed 's/.*"sqlite":{"version":"\([0-9.]*\)".*/\1/')" blessing
	printf ','; package go-std 'Go standard library' "$(go env GOVERSION)" BSD-3-Clause "pkg:golang/std@$(go env GOVERSION | sed s/go//)"
	if getconf GNU_LIBC_VERSION >/dev/null 2>&1; then # Linux: the binary is static
		ids+=(glibc libstdcxx)
		printf ','; package glibc glibc "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)" LGPL-2.1-or-later
		printf ','; package libstdcxx libstdc++ "$(c++ -dumpfullversion -dumpversion)" 'GPL-3.0-or-later WITH GCC-exception-3.1'
	fi
	while read -r path module _; do
		n=$((n + 1)) ids+=("go-$n")
		printf ','; package "go-$n" "$path" "$module" "$(spdx_licence "$out/licences/${path//\//_}-$module")" "pkg:golang/$path@$module"
	done < <(modules)
	printf '],"relationships":[{"spdxElementId":"SPDXRef-DOCUMENT","relationshipType":"DESCRIBES","relatedSpdxElement":"SPDXRef-quern"}'
	printf ',{"spdxElementId":"SPDXRef-quern","relationshipType":"STATIC_LINK","relatedSpdxElement":"SPDXRef-%s"}' "${ids[@]}"
	printf ']}\n'
}

json_version() {
	sed -n 's/^#define NLOHMANN_JSON_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' third_party/llama.cpp/src/vendor/nlohmann/json.hpp | paste -sd.
}

build
licences
cp LICENSE NOTICE README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md "$out/"
mkdir "$out/docs" && cp docs/*.md "$out/docs/"
"$out/quern" man >"$out/quern.1"
bill >"$out/sbom.spdx.json"
(cd "$out" && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum >SHA256SUMS)
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C dist -cf - "$name" | gzip -9n >"$out.tar.gz"
(cd dist && sha256sum "$name.tar.gz")
