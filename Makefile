# Everything a fresh machine with Python 3.13, make and git needs: `make demo` runs the main job, `make test` all tests.
# Each target installs what it needs into .venv first, from requirements files that pin every package with its hashes.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.13
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
# `sam build` looks for python3.13 on PATH; the environments' own one is always the right one.
export PATH := $(VENV)/bin:$(VENV)/opt/sam/bin:$(PATH)
export SAM_CLI_TELEMETRY := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP_INSTALL := -m pip install --quiet --require-hashes -r

.PHONY: help demo test check local format lint types validate requirements install clean

help: ## Say what can be made.
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/.dev $(VENV)/opt/.emulator $(VENV)/opt/.sam ## Install everything into .venv.

# The SAM CLI and the emulator pin other versions of boto3, so that each has an environment of its own inside .venv.
$(VENV)/.dev: requirements/dev.txt
	@echo "installing the development environment into .venv"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) $(PIP_INSTALL) $<
	@touch $@

$(VENV)/opt/.%: requirements/%.txt | $(VENV)/.dev
	@echo "installing the $* environment into .venv/opt/$*"
	@$(PYTHON) -m venv $(VENV)/opt/$*
	@$(VENV)/opt/$*/bin/python $(PIP_INSTALL) $<
	@touch $@

local: install ## Run the whole system here until Ctrl-C [STRIPE_API_BASE=http://…].
	@STRIPE_API_BASE=$(STRIPE_API_BASE) exec $(PY) -m local
