# Everything lives in .venv and build/. `make demo` and `make test` work on a fresh clone.
#
#   make demo       build, then ask SmolLM2-135M-Instruct a question (fetches 93 MB once)
#   make test       build, then the tests          make test-long   also the slow ones and foreign ISAs
#   make lint       formatters, linters, layers    make bench       our figures on this machine
#   make build      only build                     make compare     beside other engines: bench/README.md
#   make test-metal the Metal device, emulated     make metal-counters   what a token costs on it
#   make clean      remove .venv, build/ and caches
#
# PYTHON=python3.12 chooses the interpreter, WERROR=OFF keeps warnings warnings, JOBS=1 spares the machine.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
WERROR ?= ON
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CPP_FILES = $(shell find csrc metal tests/cpp -name '*.h' -o -name '*.inl' -o -name '*.cpp' -o -name '*.metal')

.PHONY: demo build test build-metal test-metal metal-counters test-long lint bench compare clean

demo: build
	@answer=build/demo-answer.txt; \
	$(BIN)/saragossa run demo --temperature 0 --max-tokens 64 "What is the capital of France?" | tee $$answer; \
	grep -q Paris $$answer || { echo "make demo: the answer does not hold the word Paris" >&2; exit 1; }

build: .venv/.build
	@echo "building the core (minutes the first time, seconds afterwards)"
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) install --no-build-isolation --editable . \
	  --config-settings=build-dir=build/dev \
	  --config-settings=cmake.define.SARAGOSSA_WERROR=$(WERROR) \
	  --config-settings=cmake.define.SARAGOSSA_TESTS=ON \
	|| { echo "make build: failed; if a new compiler only warns, try: make WERROR=OFF" >&2; exit 1; }

test: build .venv/.test test-metal
	$(BIN)/python -m pytest

# The Metal device: on a Mac as it is; on Linux x86-64 on the emulator, a build of its own with clang, and a process of
# its own. Elsewhere there is nothing to run it on.
MACHINE := $(shell uname -s)-$(shell uname -m)
ifeq ($(MACHINE),Linux-x86_64)
METAL := build-metal
else ifneq ($(findstring Darwin,$(MACHINE)),)
METAL := build
endif

build-metal: .venv/.build
	@tools/install_clang.sh
	@mkdir -p build
	@$(BIN)/cmake -S . -B build/metal -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DSARAGOSSA_METAL_EMULATOR=ON \
	  -DSARAGOSSA_WERROR=$(WERROR) -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	  -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir) -DSKBUILD_PROJECT_VERSION=0.0.0 >build/metal.log 2>&1 \
	|| { cat build/metal.log >&2; exit 1; }
	@echo "building the core on the Metal emulator"
	@$(BIN)/cmake --build build/metal --parallel $(JOBS) >build/metal.log 2>&1 || { cat build/metal.log >&2; exit 1; }

# By two workers: compiling kernels is most of the work.
test-metal: build $(METAL) .venv/.test
ifneq ($(METAL),)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/metal
else
	@echo "the Metal tests are skipped: $(MACHINE) has neither Metal nor the emulator"
endif

# Calls and bytes of a decoded token on the Metal device, per model, with their bounds.
metal-counters: build build-metal .venv/.test
	@$(BIN)/python bench/metal_counters.py

test-long: test
	@for script in tests/cpp/run_neon.sh tests/cpp/run_avx512.sh; do echo "== $$script"; PYTHON=$(BIN)/python $$script; done
	$(BIN)/python -m pytest -m long
ifneq ($(METAL),)
	$(BIN)/python -m pytest -m long tests/metal
endif

lint: .venv/.lint build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_layers.py
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)

bench: build
	$(BIN)/saragossa bench demo

# MODELS: folders of bench/make_models.py; PEERS: the interpreter of the environment that has the other engines.
compare: build
	@test -n "$(MODELS)" && test -n "$(PEERS)" \
	|| { echo "make compare: give MODELS=\"DIR...\" and PEERS=PYTHON (bench/README.md says how to make them)" >&2; exit 2; }
	@for models in $(MODELS); do \
	  $(BIN)/python bench/compare.py --models $$models --python-oracle $(PEERS) $(ARGS) || failed=1; \
	done; exit $${failed:-0}

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment: one stamp for each group of pyproject.toml ------------------------------------

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null && command -v c++ >/dev/null \
	|| { echo "make: needs a C++20 compiler and Python headers; on Debian: apt install g++ python3-dev python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; echo "make: on Debian: apt install python3-venv" >&2; exit 1; }
	$(PIP) install --upgrade 'pip>=25.1'

.venv/.build .venv/.test .venv/.lint: .venv/.%: pyproject.toml .venv/bin/python
	$(PIP) install --group $*
	@touch $@
