#!/usr/bin/env bash
# Makes a Python environment with the peers of `quern bench files`: PEFT, and what llama.cpp's convert_hf_to_gguf.py
# imports (gguf-py it takes from the sources beside it). Prints the path of the interpreter.
#
# It is kept in ${QUERN_CACHE:-${XDG_CACHE_HOME:-~/.cache}/quern}/peers, apart from everything else: remove the folder
# and it is gone. It may be run again and interrupted at any time. Some GB, mostly torch.
#
#   PYTHON   interpreter to make the environment with, default python3
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${QUERN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quern}/peers
base=${PYTHON:-python3}
python=$peers/bin/python

die() { printf 'peers: %s\n' "$*" >&2; exit 1; }

# The list of what is installed goes in last: with it the environment is whole.
if ! cmp -s "$here/requirements.txt" "$peers/installed.txt"; then
	command -v "$base" >/dev/null || die "$base is missing; the peers are written in Python"
	"$base" -c 'import ensurepip, venv' 2>/dev/null || die "$base cannot make environments (Debian/Ubuntu: sudo apt-get install python3-venv)"
	"$base" -m venv --clear "$peers"
	"$python" -m pip install --quiet --no-cache-dir -r "$here/requirements.txt" >&2 || die "pip could not install the peers"
	cp "$here/requirements.txt" "$peers/installed.txt"
fi
printf '%s\n' "$python"
