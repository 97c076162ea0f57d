# Every target does its own set-up. `make install` leaves .venv/bin/regard.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install demo test lint clean

install: $(STAMP)

# torch first and by its exact version, so that no larger build is pulled in by another package.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $(STAMP)

.venv/.installed-dev: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: install
	$(BIN)/regard demo

# Bytecode is kept, or each worker and each command would compile the tests and the package again.
test: .venv/.installed-dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist worksteal

lint: .venv/.installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

clean:
	rm -rf .venv build dist src/*.egg-info
