#!/usr/bin/env bash
# Makes internal/demo/model.gguf, the model inside the binary, from testdata/demo-model: the base, its two stages merged
# in order in f32, stored as f16. Run it again and the file is the same, bit for bit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=testdata/demo-model
quern=${QUERN:-bin/quern}
out=${1:-internal/demo/model.gguf}
# What stage 1 was trained on. `quern inspect --fingerprint testdata/demo-model/base` prints it.
base_fingerprint=q1-ba0e209e4712b1ea2c525f84286da66d2c1f0fed7c432a16b3e80910cbd314f7

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$parts/base" "$work/demo-base"
"$quern" lora merge --base "$work/demo-base" --base-fingerprint "$base_fingerprint" \
	--adapter "$parts/adapters/stage1" --adapter "$parts/adapters/checkpoint-1066-adapter.zip" \
	--type f32 --out "$work/quern-demo"
"$quern" convert "$work/quern-demo" --type f16 --name "Quern demo" --out "$out"
