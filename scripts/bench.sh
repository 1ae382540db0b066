#!/usr/bin/env bash
# Measures Quern beside its peers on this machine and writes docs/BENCHMARKS.md. Called by `make bench`, which builds the
# binary and the peers first. Under 30 minutes on two cores; keep the machine quiet.
#
#   BENCH_REPEATS  runs of each party, default 3
#   BENCH_SHAPES   shapes to measure, default "qwen2.5-0.5b qwen3.5-0.8b"; the first in full, others at 1 and 16 lanes and
#                  without the Transformers loop
#   BENCH_TYPE     type of the weights, default q8_0
#   PYTHON         interpreter with torch, transformers and peft; by default an environment of their own, made once in the
#                  cache by scripts/peers/setup.sh. A peer that is missing is named in the report.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

repeats=${BENCH_REPEATS:-3}
shapes=${BENCH_SHAPES:-qwen2.5-0.5b qwen3.5-0.8b}
type=${BENCH_TYPE:-q8_0}
python=${PYTHON:-$(scripts/peers/setup.sh || echo python3)}
out=docs/BENCHMARKS.md
mkdir -p docs
new=$(mktemp docs/.benchmarks.XXXXXX)
trap 'rm -f "$new"' EXIT
chmod 644 "$new"

cat >"$new" <<END
# Benchmarks

Written by \`make bench\`. Weights are random, in the shapes of published models: speed depends on their sizes and types,
not on their values. All parties have the same file, threads, batch sizes, flash attention and f16 key/value memory; their
runs take turns. llama-batched-bench and llama-server are built from the sources that Quern links, with the same flags;
they do not have the kernels that Quern brings along for some processors (\`engine/internal/kernel\`).

\`gen\` measures the forward pass: prompts of all lanes are read together, then all lanes generate in step. The peer does not
sample; Quern chooses each token. "of bandwidth" is the weights read per second at decode, as a share of what this machine
reads from memory; with many lanes arithmetic is the bound, not memory. "own time" is spent in Quern's scheduler.

\`agent\` plays recorded conversations, eight on each of up to eight databases. The server gets the same loop over HTTP, its
memory shared by 16 slots, prompts kept. The Transformers loop reads each turn from the beginning in static batches of 16; it
is run once, on 16 of the conversations, and its time scaled up to all.

END
measure() { # measure SHAPE FLAG…
	echo "bench: $*" >&2
	bin/quern bench run --type "$type" --repeats "$repeats" --shape "$@" --python "$loop" --markdown "$new" -v
	printf 'Command: `bin/quern bench run --type %s --repeats %s --shape %s`\n\n' "$type" "$repeats" "$*" >>"$new"
}
loop=$python
full=(--load demo)
for shape in $shapes; do
	measure "$shape" "${full[@]}"
	loop='' full=(--lanes 1,16 --load demo:16)
done
bin/quern bench files --repeats "$repeats" --python "$python" --markdown "$new" -v
printf 'Command: `bin/quern bench files --repeats %s`\n\n' "$repeats" >>"$new"
# What follows this line in the document was measured on other machines and stays.
marker='<!-- other machines -->'
if [ -f "$out" ] && grep -qF "$marker" "$out"; then sed -n "/$marker/,\$p" "$out" >>"$new"; else echo "$marker" >>"$new"; fi
mv "$new" "$out"
trap - EXIT
echo "bench: wrote $out" >&2
