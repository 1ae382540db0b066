#!/usr/bin/env bash
# Shows that the CUDA build compiles and links on a machine without a GPU, and that its binary then runs on the CPU.
# Called by `make cuda-check`. It fetches a toolkit where there is none; the first build takes about an hour on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'cuda-check: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

CUDA_HOME=$(scripts/cuda-toolkit.sh)
export CUDA_HOME
bin=bin/quern-cuda
make -s build CUDA=1 BIN="$bin"

needed=$(readelf -d "$bin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
say "$(du -h "$bin" | cut -f1) binary; needs at start: $needed"
case $needed in *libcuda.so*) die "libcuda is linked: the binary would not start on a machine without a driver" ;; esac
"$bin" version | grep -q CUDA || die "$bin was built without the CUDA backend"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
answer=$("$bin" ask --model internal/demo/model.gguf --db internal/demo/harbor.sqlite --format csv 'How many vessels are there?' 2>"$log") ||
	{ cat "$log" >&2; die "asking failed"; }
if [ ! -e /proc/driver/nvidia/version ]; then
	lines=$(grep -c 'running on the CPU' "$log" || true)
	[ "$lines" = 1 ] || { cat "$log" >&2; die "without a GPU one line is to say that the CPU is used; there are $lines"; }
fi
say "it links, starts and answers:" $answer
