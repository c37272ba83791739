# `make demo` and `make test` do all the set-up on a fresh machine (Python 3.11 or newer, Linux or macOS).
PYTHON ?= python3
VENV ?= .venv
# The versions this is tested with. A torch built for CUDA brings its own Triton; the CPU build brings none.
TORCH ?= torch==2.13.0
TRITON ?= triton==3.6.0
BIN := $(VENV)/bin

.PHONY: demo test check docs clean

demo: $(VENV)/.installed
	$(BIN)/tilecast optimize examples/softmax --max-evals 20

# Tests that start several processes each, and those that need the machine to themselves, come after the others.
CROWDED := tests/test_bundles.py tests/test_cluster.py tests/test_judge_orphan.py tests/test_lanes.py tests/test_postgres.py
ALONE := $(wildcard tests/test_timing_*.py) tests/test_chat_terminal.py

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 4 --dist loadfile $(addprefix --ignore=,$(CROWDED) $(ALONE))
	$(BIN)/python -m pytest -n 2 --dist loadfile $(CROWDED)
	$(BIN)/python -m pytest $(ALONE)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=.types $(BIN)/lint-imports
	$(BIN)/python docs/make_docs.py --check
	$(BIN)/python benchmarks/render_results.py --check

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/make_docs.py
	$(BIN)/python benchmarks/render_results.py

$(VENV)/.installed: pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install -q "$(TORCH)"
	test "$$(uname)" != Linux || $(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/python -m pip install -q "$(TRITON)"
	$(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
