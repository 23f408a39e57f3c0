# Everything is installed into .venv, made on first use from constraints.txt. The benchmark has an
# environment of its own, .venv-bench: what it compares with would put itself into JupyterLab.
# Works with the make of macOS (3.81) and needs only Python 3.11 or newer, make and git.

.DEFAULT_GOAL := help
.PHONY: help lab test faults bench notebooks pictures site zoo mutants lint format clean
.DELETE_ON_ERROR:

# The first Python on the PATH that torch is built for. Another one: make lab PYTHON=/path/to/python
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$python" -c '$(SUPPORTED)' >/dev/null 2>&1 && echo "$$python" && break; done)
RUN := .venv/bin/python
BENCH := .venv-bench/bin/python

# The torch that PyPI has for Linux carries CUDA: some 3 GB to download. A machine without NVIDIA's
# driver is better served by PyTorch's own index of CPU builds, as a second index, unless
# its pip has been told where to look. Always from pip's own indexes: make lab TORCH_INDEX=
TORCH_INDEX ?= $(shell test "$$(uname)" = Linux && ! command -v nvidia-smi >/dev/null && \
	! $(@D)/bin/python -m pip config list 2>/dev/null | grep -qE '(index-url|find-links)=' && \
	echo https://download.pytorch.org/whl/cpu)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# .jupyter/labconfig: no news pop-up, and pages in Markdown are shown rather than edited.
lab: .venv/ready-lab ## install, check the machine, open JupyterLab at the start page
	@$(RUN) -m course_lib.doctor
	@$(RUN) -m course_lib.classroom start
	@JUPYTER_CONFIG_PATH="$(CURDIR)/.jupyter$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
		$(RUN) -m jupyterlab --ServerApp.root_dir=. \
		--LabApp.default_url=/lab/tree/notebooks/START.md \
		$(if $(filter 0,$(shell id -u)),--allow-root)

# Three processes for two cores: tests also wait, for ranks that stand still or for a kernel.
test: .venv/ready-dev lint ## install, then lint, tests, all solutions under nbval; ALL=1: all answers and lessons graded
	@$(RUN) -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder --nbval

faults: .venv/ready-dev ## let ranks fail at every call of every technique, and observe all, about 12 minutes
	@FAULTS=1 $(RUN) -m pytest --numprocesses 2 --dist worksteal tests/faults tests/techniques

bench: .venv-bench/ready ## measure against PyTorch and others, about 8 minutes: ONLY=ring, or PUBLISH=1 (17)
	@$(BENCH) -m tests.bench $(foreach row,$(ONLY),--only $(row)) $(if $(PUBLISH),--publish)

notebooks: .venv/ready-dev ## rebuild notebooks/, solutions/*.ipynb and docs/exercises.md from solutions/*.py
	@$(RUN) -m course_lib.classroom build --execute
	@$(RUN) -m docs.exercises

pictures: .venv/ready-dev ## draw the README's pictures of JupyterLab again
	@$(RUN) -m docs.pictures

site: .venv/ready-dev ## write the lessons as web pages, without answers, into build/site
	@$(RUN) -m docs.site build/site

zoo: .venv/ready-dev ## show how many known wrong answers each check rejects
	@$(RUN) -m course_lib.checks

mutants: .venv/ready-dev ## show how many small changes to right answers each check rejects, about 15 minutes: ONLY=zero1
	@$(RUN) -m tests.mutants $(ONLY)

lint: .venv/ready-dev ## check style and types
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --quiet --check .
	@$(RUN) -m mypy --no-error-summary

format: .venv/ready-dev ## put the style right
	@$(RUN) -m ruff check --quiet --fix .
	@$(RUN) -m ruff format --quiet .

clean: ## remove the environments and all caches
	rm -rf .venv .venv-bench .pytest_cache .ruff_cache .mypy_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready-dev: EXTRAS := [dev]
.venv/ready-%: pyproject.toml constraints.txt | $(RUN)
	$(install)
.venv-bench/ready: EXTRAS := [bench]
.venv-bench/ready: pyproject.toml constraints.txt | $(BENCH)
	$(install)

PIP = $(@D)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
define install
@echo "Installing into $(@D) (some minutes the first time) ..."
@$(PIP) torch $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
@$(PIP) --editable '.$(EXTRAS)'
@touch $@
endef

$(RUN) $(BENCH):
	@test -n "$(PYTHON)" || { echo "No Python from 3.11 to 3.14 found." \
		"Install one (from python.org; Debian: apt-get install python3 python3-venv;" \
		"macOS: brew install python@3.13), then run make again." >&2; exit 1; }
	@"$(PYTHON)" -c '$(SUPPORTED)' || { echo "$(PYTHON) is not a Python from 3.11 to 3.14:" \
		"leave PYTHON= out, or name another." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make environments:" \
		"Debian and Ubuntu keep that part in a package of its own." \
		"Run: sudo apt-get install python3-venv, then make again." >&2; exit 1; }
	@"$(PYTHON)" -m venv --clear $(@:%/bin/python=%)
