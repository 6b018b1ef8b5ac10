# Everything a fresh machine with Python 3.13, make and git needs: `make local` runs the system, `make test` all tests.
# Each target installs what it needs into .venv first, from requirements files that pin every package with its hashes.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
ifeq ($(wildcard layers/requirements/dev.txt),)
$(error this is not the checkout: run make in its folder, or make -C folder)
endif
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= $(if $(shell python3.13 --version 2>/dev/null),python3.13,python3)
# Relative, since make splits names at spaces: with the checkout's path in them, `make clean` in "/home/me/my shop" would
# delete /home/me/my.
VENV := .venv
PY := $(VENV)/bin/python
# `sam build` looks for python3.13 on PATH; the environments' own one is always the right one.
export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/$(VENV)/opt/sam/bin:$(value PATH)
# Nothing that the shell holds changes what runs here: no AWS profile, no other Python code, no other encoding.
unexport PYTHONPATH PYTHONHOME PYTHONIOENCODING PIP_USER PIP_TARGET PIP_PREFIX
unexport $(filter AWS_%,$(.VARIABLES))
export PYTHONUTF8 := 1
export SAM_CLI_TELEMETRY := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Ctrl-C ends `cat` before Python can print the traceback of a KeyboardInterrupt into it.
UNTRACED := 2>&1 | cat
# $(call pip_install,environment): every package is pinned, so nothing is resolved; what is imported compiles itself.
pip_install = $(PY) -m pip --python $(1)/bin/python install --quiet --no-deps --no-compile --require-hashes -r $< $(UNTRACED)

.PHONY: help install local unit test nightly check format lint types validate scan sbom openapi requirements clean

USE := install demo local new
PROVE := test nightly parity specification simulate mutants experiments survival bench
help: ## Say what can be made: to use it, to change it, to prove it.
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' -v use=' $(USE) ' -v prove=' $(PROVE) ' ' \
	  { part = index(use, " " $$1 " ") ? 1 : index(prove, " " $$1 " ") ? 3 : 2 } \
	  { parts[part] = parts[part] sprintf("  make %-14s %s\n", $$1, $$2) } \
	  END { printf "Use it:\n%s\nChange it:\n%s\nProve it:\n%s", parts[1], parts[2], parts[3] }'

install: $(VENV)/.made-at ## Install what `make local` and a deployment need into .venv.
	@$(MAKE) --silent --no-print-directory -j3 $(VENV)/.local $(VENV)/opt/.emulator $(VENV)/opt/.sam

# A virtual environment works only where it was made, since its programs hold its path, and with the Python that made it.
# In a checkout that was moved, or where another Python had made one, it is made anew, and all that is in it.
ifneq ($(shell test -x $(PY) && cat $(VENV)/.made-at 2>/dev/null),$(shell cd $(VENV) 2>/dev/null && pwd -P))
.PHONY: $(VENV)/.made-at
endif
$(VENV)/.made-at:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null || { \
	  echo "Python 3.13 is needed; PYTHON=$(PYTHON) is $$("$(PYTHON)" --version 2>/dev/null || echo not there)." \
	    "Install it, or say where it is: make PYTHON=/path/to/python3.13"; exit 1; }
	@test ! -L $(VENV) || { echo ".venv is a link to an environment that was made elsewhere: remove the link"; exit 1; }
	@"$(PYTHON)" -m venv --clear $(VENV) $(UNTRACED)
	@(cd $(VENV) && pwd -P) > $@

PIP_FAILED = { echo "not installed: pip says why above. If it could not reach its package index, run this again when it can."; exit 1; }

# What is said while one of them is installed.
WHAT.local := the libraries of the functions and of our commands
WHAT.dev := what the tests need
WHAT.emulator := the AWS emulator
WHAT.sam := the SAM CLI

# In a project of your own: the local stack and the Stripe stand-in, as wheels.
VENDORED := $(wildcard vendor/requirements.txt)

# .venv has what the local run needs; tests and checks add what only they need.
$(VENV)/.local $(VENV)/.dev: $(VENV)/.%: layers/requirements/%.txt $(VENV)/.made-at $(VENDORED)
	@echo "• installing $(or $(WHAT.$*),$*) into .venv, once: one to three minutes"
	@$(call pip_install,$(VENV)) || $(PIP_FAILED)
	@$(if $(VENDORED),$(PY) -m pip install --quiet --no-deps --force-reinstall --require-hashes -r $(VENDORED) $(UNTRACED))
	@touch $@

# The SAM CLI and the emulator pin other versions of boto3: each has an environment of its own in .venv.

$(VENV)/opt/.%: layers/requirements/%.txt $(VENV)/.made-at
	@echo "• installing $(or $(WHAT.$*),$*) into .venv/opt/$*, once: one to three minutes"
	@$(PY) -m venv --clear --without-pip $(VENV)/opt/$* $(UNTRACED)
	@$(call pip_install,$(VENV)/opt/$*) || $(PIP_FAILED)
	@touch $@

# What `sam validate --lint` needs beside the SAM CLI: as large as it, and no part of building or deploying.
$(VENV)/opt/.sam-lint: layers/requirements/sam-lint.txt $(VENV)/opt/.sam
	@$(call pip_install,$(VENV)/opt/sam) || $(PIP_FAILED)
	@touch $@

# $(call option,SEED,seed) is --seed "…" if SEED=… was given.
option = $(if $($(1)),--$(2) "$($(1))")

# With the console, where lab/ is.
local: install ## Run the whole system here until Ctrl-C, with a shop [PORT=4242] [STRIPE_API_BASE=…].
	@STRIPE_API_BASE="$(STRIPE_API_BASE)" exec $(PY) -m $(if $(wildcard lab/console),lab.console,local) $(call option,PORT,port)

# One process a core; the tests of one stack share one (conftest.py).
PYTEST := $(PY) -m pytest -q -n $(shell nproc 2>/dev/null || echo 2)
# A copy by `make new` has fewer tests: they run too few lines for the bound in pyproject.toml.
COVER := $(if $(wildcard lab),--cov)
UNIT_TESTS := $(wildcard tests/unit stripe_standin/tests)
# Files, and tests in them, are run alone; options, as `-k cancel`, choose among all unit tests.
FILES_ASKED_FOR = $(wildcard $(foreach each,$(PYTEST_ARGS),$(firstword $(subst ::, ,$(each)))))
# Said here, since pytest with several processes says nothing of a file that is not there.
NOT_THERE = $(strip $(foreach each,$(filter-out -%,$(PYTEST_ARGS)),$(call not_there,$(firstword $(subst ::, ,$(each))))))
not_there = $(if $(filter %.py,$(1)),$(if $(wildcard $(1)),,$(1)))
NONE_CHOSEN = || { code=$$?; test $$code != 5 || echo "PYTEST_ARGS=$(PYTEST_ARGS) chooses no test: give a file, file::test or -k word"; exit $$code; }
require_files = $(if $(NOT_THERE),$(error PYTEST_ARGS: there is no $(NOT_THERE)))
unit: $(VENV)/.dev ## Run the unit tests: no emulator, no npm [PYTEST_ARGS=…: these alone].
	@$(require_files)$(if $(FILES_ASKED_FOR),$(PY) -m pytest -q,$(PYTEST) $(UNIT_TESTS)) $(or $(PYTEST_ARGS),$(COVER)) $(NONE_CHOSEN)

test: install $(VENV)/.dev ## Run all tests but the nightly ones, on one stack [PYTEST_ARGS=…: these alone].
	@$(require_files)$(PYTEST) $(or $(PYTEST_ARGS),$(COVER)) $(NONE_CHOSEN)

check: lint types validate test ## The whole gate: format, lint, types, template, tests.

format: $(VENV)/.dev ## Format the code.
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

lint: $(VENV)/.dev ## Check format, lint, and that imports go one way.
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@PYTHONPATH=functions:shared:. $(VENV)/bin/lint-imports --no-logo --no-cache

types: $(VENV)/.dev ## Check types, strictly.
	@$(VENV)/bin/mypy

validate: $(VENV)/opt/.sam-lint ## Validate template.yaml.
	@AWS_DEFAULT_REGION=us-east-1 $(VENV)/opt/sam/bin/sam validate --lint

openapi: $(VENV)/.dev ## Write docs/openapi.json, the API's description, from the code.
	@PYTHONPATH=functions:shared:. $(PY) -m tests.support.openapi

# The pinned requirements, hashes and all, from what layers/requirements/*.in ask for; UPGRADE=--upgrade takes newer releases.
COMPILE := $(VENV)/bin/uv pip compile --quiet $(UPGRADE) --generate-hashes --universal --python-version 3.13 \
  --no-header --no-emit-index-url --no-annotate
LINT_ALONE := cfn-lint jsonpatch jsonpointer mpmath networkx sympy
# Types that the SAM CLI asks for, and does not import.
TYPES_ALONE := boto3-stubs botocore-stubs types-s3transfer \
  $(addprefix mypy-boto3-,apigateway ecr iam schemas secretsmanager signer sts xray)
requirements: $(VENV)/.dev ## Pin the dependencies anew [UPGRADE=--upgrade].
	@$(COMPILE) layers/requirements/libraries.in -o layers/libraries/requirements.txt
	@$(COMPILE) layers/requirements/stripe.in -o layers/stripe/requirements.txt \
	  $$(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' layers/libraries/requirements.txt)
	@$(COMPILE) layers/requirements/sam.in -o layers/requirements/sam.txt \
	  $(addprefix --no-emit-package ,$(LINT_ALONE) $(TYPES_ALONE))
	@$(COMPILE) layers/requirements/sam-lint.in -c layers/requirements/sam.txt -o layers/requirements/sam-lint.txt \
	  $(addprefix --no-emit-package ,$(TYPES_ALONE)) \
	  $$(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' layers/requirements/sam.txt)
	@for each in local dev bench checks emulator sbom; do test ! -f layers/requirements/$$each.txt || \
	  $(COMPILE) layers/requirements/$$each.in -o layers/requirements/$$each.txt || exit 1; done

# What a copy by `make new` does not have.
-include lab/targets.mk

clean: ## Remove everything that was installed or built.
	@rm -rf $(VENV) .aws-sam .local .mypy_cache .pytest_cache .ruff_cache .coverage
