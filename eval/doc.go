// Package eval runs, scores, reports and compares text-to-SQL evaluations.
//
// The flow: a benchmark package (eval/spider, eval/bird, eval/spider2) reads a downloaded dataset into a [Dataset]. A
// [Predictor] turns each [Example] into a [Prediction]; a [Scorer] of the benchmark turns both into a [Score]. [Run] does
// this in lanes, with a checkpoint from which a killed run goes on, and ends in a results file: one [Manifest] line, then
// one [Result] line for each question in the dataset's order. [BuildReport] and [Compare] need nothing but results files.
//
// Two kinds of failure never mix. What a model did wrong is a [Verdict]; what our side failed to do (a worker that could
// not start, a server that hung up) is [HarnessError], which is never counted as wrong and is done again on resume.
package eval
