#!/usr/bin/env bash
# gofmt, go vet, and staticcheck at a pinned version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.7.0
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "gofmt would change:"; echo "$unformatted"; exit 1; }
go vet ./...
go run "$STATICCHECK" ./...
echo "lint: clean"
