# make train   set up, then train a 16-layer GNN on CiteSeer without backpropagation, beside Adam
# make test    set up, then linters, types and tests
# make lint    linters and types only
# make bench-quick   set up, then measure against Adam on CiteSeer, in a few minutes; the report is in runs/
# make clean   remove what the above made, except runs/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: train test lint bench-quick clean setup

train: $(READY)
	$(BIN)/gfgnn train --data citeseer --model gcnii --layers 16 --iters 25 --threads 1 --compare-adam --adam-seconds 4 \
	  --out runs/citeseer-gcnii16 --overwrite

test: lint
	$(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-quick: $(READY)
	$(BIN)/gfgnn bench --suite quick

setup: $(READY)

# Done once, and again when the requirements or what is compiled change. pip, not uv: uv takes the CUDA build of torch, several GB.
# --no-compile saves a third of the time: most modules are never imported, and the others compile themselves then.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard gfgnn/ops/native/*.cpp gfgnn/ops/native/*.h)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gfgnn needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info gfgnn/ops/native/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find gfgnn tests examples benchmarks datasets -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
