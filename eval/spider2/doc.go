// Package spider2 reads Spider 2.0-lite and scores its SQLite part as the published evaluate.py does
// (xlang-ai/Spider2, spider2-lite/evaluation_suite): the result of a query goes through a CSV file and pandas' type
// guessing, and every gold column must equal some column of the prediction.
//
// csv.go, infer.go and frame.go are pandas.read_csv 2.2 as far as that comparison needs it; write.go is the way a query's
// result takes into a CSV file; compare.go is the comparison.
package spider2
