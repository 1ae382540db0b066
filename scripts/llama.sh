#!/usr/bin/env bash
# Fills third_party/llama.cpp: the pinned sources (src) and the static libraries built from them (lib).
#
#   scripts/llama.sh [libs]     sources + libraries
#   scripts/llama.sh tools      also llama-server, llama-batched-bench, llama-quantize, llama-imatrix (bin)
#   scripts/llama.sh key        print the name of the build in the cache, build nothing
#
# Sources come from, in order: LLAMA_CPP_DIR, the cache, the npm package in llama.pin, a git clone.
# Everything is kept in ${QUERN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/quern}, keyed by pin and flags, so a second
# clone takes seconds. It may be run again and interrupted at any time: what is not complete is not used.
# PORTABLE=1 builds for any x86-64-v3 (or baseline arm64) machine; CUDA=1 [CUDA_ARCH=80] adds the CUDA backend.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(dirname "$here")
cache=${QUERN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quern}
want=${1:-libs}
case $want in libs | tools | key) ;; *) echo "usage: scripts/llama.sh [libs|tools|key]" >&2; exit 2 ;; esac
# shellcheck source=llama.pin
. "$here/llama.pin"

say() { printf 'llama: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

hint() { # hint TOOL DEB FEDORA BREW
	say "$1 is missing. Install it:"
	say "  Debian/Ubuntu: sudo apt-get install $2"
	say "  Fedora:        sudo dnf install $3"
	say "  macOS:         brew install $4   (compiler: xcode-select --install)"
	exit 1
}
need() { command -v "$1" >/dev/null 2>&1 || hint "$@"; }

sha256() { if command -v sha256sum >/dev/null 2>&1; then sha256sum "$@"; else shasum -a 256 "$@"; fi | cut -d' ' -f1; }

cpu_id() { # what -march=native would see, so that a cache shared by machines is not run on the wrong one
	if [ -r /proc/cpuinfo ]; then grep -m1 -E '^(flags|Features)' /proc/cpuinfo; else sysctl -n machdep.cpu.brand_string 2>/dev/null || uname -p; fi
}

flags=(-DCMAKE_BUILD_TYPE=Release)
if [ "${PORTABLE:-0}" = 1 ]; then
	kind=portable; flags+=(-DGGML_NATIVE=OFF)
else
	kind=native; flags+=(-DGGML_NATIVE=ON)
fi
if [ "${CUDA:-0}" = 1 ]; then
	kind=$kind-cuda${CUDA_ARCH:-80}
	flags+=(-DGGML_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCH:-80}" -DGGML_CUDA_NCCL=OFF -DGGML_CUDA_NO_VMM=ON)
	[ -n "${CUDA_HOME:-}" ] && flags+=("-DCMAKE_CUDA_COMPILER=$CUDA_HOME/bin/nvcc" "-DCUDAToolkit_ROOT=$CUDA_HOME")
fi
id=$( { printf '%s\n' "$LLAMA_TREE" "${flags[@]}" "${CC:-cc}" "${CXX:-c++}"; cat "$here/llama/CMakeLists.txt"
	[ "${PORTABLE:-0}" = 1 ] || cpu_id; } | { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; } | cut -c1-12)
key=$LLAMA_TAG-$kind-$id
[ "$want" = key ] && { echo "$key"; exit 0; }

src=$cache/llama.cpp/src-$LLAMA_TAG-${LLAMA_TREE:0:12}
build=$cache/llama.cpp/$key

check_tree() { # check_tree REPO: the commit checked out there has the pinned tree
	[ "$(git -C "$1" rev-parse 'HEAD^{tree}')" = "$LLAMA_TREE" ]
}

from_npm() {
	command -v npm >/dev/null 2>&1 || { say "npm is missing, so the sources cannot come from the package $LLAMA_NPM"; return 1; }
	say "fetching $LLAMA_NPM (35 MB)"
	(cd "$1" && npm pack --silent "$LLAMA_NPM" >/dev/null) || { say "npm pack $LLAMA_NPM failed"; return 1; }
	tar -xzf "$1"/node-llama-cpp-*.tgz -C "$1" package/llama/gitRelease.bundle
	local got; got=$(sha256 "$1/package/llama/gitRelease.bundle")
	[ "$got" = "$LLAMA_BUNDLE_SHA256" ] || die "the bundle in $LLAMA_NPM has sha256 $got, expected $LLAMA_BUNDLE_SHA256: not used"
	git clone -q -c advice.detachedHead=false "$1/package/llama/gitRelease.bundle" "$1/repo"
}

from_git() {
	say "cloning $LLAMA_REPO at $LLAMA_TAG"
	git clone -q -c advice.detachedHead=false --depth 1 --branch "$LLAMA_TAG" "$LLAMA_REPO" "$1/repo"
}

fetch_sources() ( # in a shell of its own, so that its trap ends with it
	need git git git git
	tmp=$(mktemp -d "$cache/llama.cpp/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	from_npm "$tmp" || from_git "$tmp" || die "no way to get llama.cpp $LLAMA_TAG: install npm (Debian/Ubuntu: sudo apt-get install npm; Fedora: sudo dnf install npm; macOS: brew install node), or set LLAMA_CPP_DIR to a checkout of $LLAMA_TAG"
	check_tree "$tmp/repo" || die "the fetched sources are not the pinned tree $LLAMA_TREE: not used"
	rm -rf "$tmp/repo/.git"
	mv "$tmp/repo" "$src"
)

link() { # link TARGET NAME: third_party/llama.cpp/NAME -> TARGET
	mkdir -p "$top/third_party/llama.cpp"
	ln -sfn "$1" "$top/third_party/llama.cpp/$2"
}

tools=(llama-server llama-batched-bench llama-quantize llama-imatrix)
jobs() { nproc 2>/dev/null || sysctl -n hw.ncpu; }

compile() { # compile TARGET…
	need cmake cmake cmake cmake
	command -v "${CXX:-c++}" >/dev/null 2>&1 || hint "a C++ compiler" build-essential "gcc-c++ make" gcc
	local gen=()
	if command -v ninja >/dev/null 2>&1; then gen=(-G Ninja); else need make make make make; fi
	# cmake goes on only from the folder where it began, so that one lies in the cache and not in this clone.
	mkdir -p "$build/cmake"
	cp "$here/llama/CMakeLists.txt" "$build/cmake/"
	grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$build/cmake" "$build/CMakeCache.txt" || rm -f "$build/CMakeCache.txt"
	local log=$build/build.log
	# A binary to hand out names no folder of the machine that built it.
	[ "${PORTABLE:-0}" = 1 ] && export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$src=llama.cpp" CXXFLAGS="${CXXFLAGS:-} -ffile-prefix-map=$src=llama.cpp"
	cmake -S "$build/cmake" -B "$build" "${gen[@]}" "-DLLAMA_SRC=$src" "${flags[@]}" >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; die "cmake failed; the whole log is $log"; }
	say "building $* (about 5 minutes on 2 cores for the libraries; log: $log)"
	cmake --build "$build" --parallel "$(jobs)" --target "$@" >>"$log" 2>&1 ||
		{ grep -m5 -E 'error|FAILED' "$log" >&2 || tail -n 20 "$log" >&2; die "the build failed; the whole log is $log"; }
}

main() {
	mkdir -p "$cache/llama.cpp"
	if [ -n "${LLAMA_CPP_DIR:-}" ]; then
		[ -f "$LLAMA_CPP_DIR/include/llama.h" ] || die "LLAMA_CPP_DIR=$LLAMA_CPP_DIR holds no include/llama.h: it must be a llama.cpp checkout"
		src=$(cd "$LLAMA_CPP_DIR" && pwd)
		build=$cache/llama.cpp/$key-$(printf '%s' "$src" | cksum | cut -d' ' -f1)
		say "sources: LLAMA_CPP_DIR=$src (not checked against the pin)"
	elif [ -d "$src" ]; then
		say "sources: cache ($src)"
	else
		fetch_sources; say "sources: $LLAMA_TAG, tree ${LLAMA_TREE:0:12} verified"
	fi

	if [ -f "$build/.done-libs" ]; then say "libraries: cache ($build)"; else
		compile quern-libs; touch "$build/.done-libs"; say "libraries: built ($build)"
	fi
	[ "$want" = libs ] || [ -f "$build/.done-tools" ] || {
		compile "${tools[@]}"; touch "$build/.done-tools"; say "tools: built"
	}
	links
}

# links points third_party/llama.cpp at what is wanted.
links() {
	link "$src" src
	link "$build/lib" lib
	[ "$want" = libs ] || link "$build/bin" bin
}

# What is complete in the cache needs no lock.
if [ -z "${LLAMA_CPP_DIR:-}" ] && [ -d "$src" ] && [ -f "$build/.done-$want" ] && [ -f "$build/.done-libs" ]; then
	links
	say "$LLAMA_TAG from the cache ($build)"
	exit 0
fi

# One build at a time for one cache: flock where there is one, else a directory.
mkdir -p "$cache"
if command -v flock >/dev/null 2>&1; then
	exec 9>"$cache/llama.lock"
	flock -n 9 || { say "another build is using $cache; waiting for it"; flock 9; }
else
	until mkdir "$cache/llama.lock.d" 2>/dev/null; do say "waiting for another build ($cache/llama.lock.d; remove it if none runs)"; sleep 5; done
	trap 'rmdir "$cache/llama.lock.d"' EXIT
fi
main
