#!/usr/bin/env bash
# Puts a CUDA toolkit together from PyPI packages, for machines that have none (a GPU is not needed to build).
#
#   scripts/cuda-toolkit.sh           fetch it once; then: make CUDA=1
#   scripts/cuda-toolkit.sh find      print where the toolkit lies, fetch nothing
#
# An installed toolkit (CUDA_HOME, /usr/local/cuda) is preferred. About 2 GB are fetched, once, into the cache.
set -euo pipefail
VERSION=13.2.2

say() { printf 'cuda: %s\n' "$*" >&2; }
use() { say "toolkit: $1"; printf '%s\n' "$1"; exit 0; }

[ -x "${CUDA_HOME:-}/bin/nvcc" ] && use "$CUDA_HOME"
[ -x /usr/local/cuda/bin/nvcc ] && use /usr/local/cuda

cache=${QUERN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quern}
home=$cache/cuda-$VERSION
[ -f "$home/.done" ] && use "$(cat "$home/.done")"
[ "${1:-}" = find ] && { say "no toolkit in CUDA_HOME, /usr/local/cuda or the cache; scripts/cuda-toolkit.sh fetches one (2 GB)"; exit 1; }

command -v python3 >/dev/null 2>&1 || { say "python3 with venv is needed to fetch the toolkit (Debian/Ubuntu: sudo apt-get install python3-venv; Fedora: sudo dnf install python3; macOS has no CUDA)"; exit 1; }
rm -rf "$home"
mkdir -p "$home"
python3 -m venv "$home/venv"
say "fetching cuda-toolkit $VERSION"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check "cuda-toolkit[nvcc,cudart,cublas,cccl,crt,nvvm]==$VERSION" >&2

nvcc=$(find "$home/venv" -path '*/bin/nvcc' -print -quit)
[ -n "$nvcc" ] || { say "the packages hold no nvcc"; exit 1; }
root=$(dirname "$(dirname "$nvcc")")
chmod +x "$root"/bin/* "$root"/nvvm/bin/* 2>/dev/null || true
# The packages carry versioned libraries only, and cmake looks in lib64.
for lib in "$root"/lib/lib*.so.*; do
	plain=${lib%%.so.*}.so
	[ -e "$plain" ] || ln -s "$(basename "$lib")" "$plain"
done
[ -e "$root/lib64" ] || ln -s lib "$root/lib64"
printf '%s' "$root" >"$home/.done"
use "$root"
