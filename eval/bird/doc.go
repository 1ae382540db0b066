// Package bird reads the BIRD benchmark and scores predictions as its two published scripts do: the one of the paper
// (AlibabaResearch/DAMO-ConvAI, bird/llm/src/evaluation.py) and the one of mini-dev (bird-bench/mini_dev, evaluation/).
//
// Both compare the sets of row tuples. They run the prediction first and the gold query after it on the same connection, so
// what a prediction writes decides what the gold sees; one limit of 30 s holds for both together.
package bird
