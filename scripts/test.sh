#!/usr/bin/env bash
# Runs `go test` with the arguments given and prints, at its end, what was skipped and why. Called by `make test`,
# which sets the build tags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
go build -o bin/testreport ./internal/testreport
set +e
go test -json -timeout 20m "$@" 2>&1 | bin/testreport bin/test.log
exit "${PIPESTATUS[0]}"
