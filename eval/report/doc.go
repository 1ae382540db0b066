// Package report writes evaluation reports for people: Markdown, one self-contained HTML page, and text for a terminal.
// The figures are those of eval.Report and eval.Comparison; nothing is computed here but differences of shown rows.
package report
