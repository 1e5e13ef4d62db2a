# The doors of the repository. `make up` and `make test` install what is missing first.

SHELL := /bin/bash
PY := .venv/bin/python
UV := $(shell command -v uv || echo .cache/tools/bin/uv)
DATA ?= data
PORT ?= 8081
SEEDS ?= 0:500
ROUNDS ?= 500
INPUTS ?= 1000000
# Packages that are checked with mypy --strict.
TYPED := razzo.cli razzo.nameserver razzo.broker razzo.runtime razzo.door razzo.storage razzo.protocol

.PHONY: help up test check build proto docs golden test-long test-clients sanitize bench
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

up: build  ## run Razzo here (DATA=data PORT=8081), with a first message through an official SDK as a self-check
	@$(PY) scripts/up.py --data $(DATA) --port $(PORT)

test: build  ## run all tests
	$(PY) -m pytest tests/arch tests/unit tests/golden tests/model tests/system

check: build  ## lint, types, architecture
	$(PY) -m ruff check .
	$(PY) -m mypy $(addprefix -p ,$(TYPED))
	$(PY) -m pytest -q tests/arch

build:  ## install what is missing, and build
	@scripts/install.sh
	@$(UV) sync --frozen --all-packages --quiet

proto: build  ## write the committed protobuf stubs anew
	$(PY) proto/generate.py

docs: build  ## write the reference pages of docs/ anew
	$(PY) scripts/reference.py

golden: build  ## compare our bytes with RocketMQ's: golden vectors, and Apache's own store classes
	$(PY) -m pytest tests/golden tests/system/apache

test-long: build  ## random histories, kills and mutated frames for longer (SEEDS=0:500 ROUNDS=500 INPUTS=1000000)
	RAZZO_MODEL_SEEDS=$(SEEDS) $(PY) -m pytest --timeout 3600 tests/model
	RAZZO_KILL_ROUNDS=$(ROUNDS) $(PY) -m pytest -s --timeout 36000 tests/system/durability/test_kill_broker.py
	DOOR_FUZZ_INPUTS=$(INPUTS) $(PY) -m pytest -s --timeout 36000 tests/system/door/test_fuzz.py

test-clients: build  ## gRPC libraries and official clients of all languages on all doors, and h2spec (builds Rust: minutes)
	DOOR_CLIENTS=go,node,java,rust DOOR_H2SPEC=1 $(PY) -m pytest tests/system/door/test_languages.py tests/system/door/test_h2spec.py
	RAZZO_TEST_RUST=1 $(PY) -m pytest tests/system/official
	RAZZO_TEST_RUST=1 RAZZO_TEST_DOOR=grpcio $(PY) -m pytest tests/system/official

sanitize: build  ## the compiled parts under address and undefined-behaviour sanitizers
	scripts/sanitize.sh

bench: build  ## measure; not part of the gate
	@for bench in tests/bench/*_bench.py; do echo "== $$bench"; $(PY) $$bench || exit 1; done
