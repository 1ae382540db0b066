# Quern. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := build

# SQLite is compiled with what Python's sqlite3 has, so that queries scored by the official scripts run here too.
SQLITE_TAGS   := sqlite_math_functions,sqlite_fts5,sqlite_omit_load_extension,sqlite_column_metadata,sqlite_dbstat
SQLITE_CFLAGS := -DSQLITE_SOUNDEX -DSQLITE_LIKE_DOESNT_MATCH_BLOBS -DSQLITE_ENABLE_FTS4 -DSQLITE_ENABLE_STMTVTAB -DSQLITE_MAX_VARIABLE_NUMBER=250000
comma         := ,
TAGS          := $(SQLITE_TAGS),netgo,osusergo$(if $(filter 1,$(CUDA)),$(comma)cuda)

# The CUDA build links the toolkit's libraries and finds libcublas through its run path; libcuda comes with the driver.
ifeq ($(CUDA),1)
CUDA_HOME := $(or $(CUDA_HOME),$(shell scripts/cuda-toolkit.sh find))
$(if $(CUDA_HOME),,$(error CUDA=1 needs a CUDA toolkit, and none was found))
export CUDA_HOME
export CGO_LDFLAGS := "-L$(CUDA_HOME)/lib64" "-Wl,-rpath,$(CUDA_HOME)/lib64"
endif

VERSION := $(shell cat version.txt)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LLAMA   := $(shell PORTABLE='$(PORTABLE)' CUDA='$(CUDA)' CUDA_ARCH='$(CUDA_ARCH)' CUDA_HOME='$(CUDA_HOME)' scripts/llama.sh key)
LDFLAGS := -s -w -X quern/internal/buildinfo.Version=$(VERSION) -X quern/internal/buildinfo.Commit=$(COMMIT) \
           -X quern/internal/buildinfo.Llama=$(LLAMA)
# One static binary on Linux; CUDA needs the dynamic loader for the driver. ld would warn that a static dlopen is of
# no use, which is true and harmless: ggml's plug-in loader is linked and never called.
ifeq ($(shell uname -s)$(CUDA),Linux)
LDFLAGS += -linkmode external -extldflags "-static$(if $(findstring --no-warnings,$(shell ld --help 2>/dev/null)), -Wl$(comma)--no-warnings)"
endif
# What is handed out is the same from any folder, so it carries no build id, which is made of paths too.
ifeq ($(PORTABLE),1)
LDFLAGS += -buildid= -B none
endif

export CGO_ENABLED := 1
export CGO_CFLAGS  := -O2 -g $(SQLITE_CFLAGS)
export GOFLAGS     := -buildvcs=false -tags=$(TAGS)

BIN   ?= bin/quern
PKG   ?= ./...
COUNT ?= 1

.PHONY: build demo test race fuzz bench lint dist demo-model clean help env llama tools cuda-check

build: llama ## build bin/quern
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/quern

demo: build ## the main job on an embedded model and database
	bin/quern demo

llama: ## fill third_party/llama.cpp and build its libraries (cached)
	@scripts/llama.sh

tools: ## llama.cpp's own server and bench, the peers of tests and benchmarks (cached)
	@scripts/llama.sh tools

cuda-check: ## compile and link with CUDA=1, no GPU needed, and see the binary run on the CPU
	@scripts/cuda-check.sh

test: llama ## everything that needs no GPU; PKG="./lora/... ./gguf/..." for a part
	@scripts/test.sh -count=$(COUNT) $(PKG)

race: llama ## the same under the race detector
	@scripts/test.sh -race -count=$(COUNT) $(PKG)

fuzz: llama ## every fuzz target for FUZZTIME (default 20s) each
	@scripts/fuzz.sh

bench: build tools ## speed against peers in the same run; writes docs/BENCHMARKS.md
	@scripts/bench.sh

lint: ## gofmt, go vet, staticcheck
	@scripts/lint.sh

env: ## print the build settings, for: eval "$$(make -s env)"
	@echo 'export CGO_ENABLED=1 CGO_CFLAGS="$(CGO_CFLAGS)" GOFLAGS="$(GOFLAGS)"'

dist: ## dist/*.tar.gz: a portable binary with licences, checksums and a bill of materials
	@scripts/dist.sh

demo-model: build ## make the embedded demo model again from its parts, bit for bit
	@scripts/demo-model.sh

clean: ## remove what was built here (the cache of llama.cpp stays)
	rm -rf bin dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' Makefile
