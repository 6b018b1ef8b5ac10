# What proves, and what compares. Included by the Makefile.
.PHONY: specification simulate mutants experiments survival bench costs

specification: $(VENV)/.dev ## Explore the charge protocol's model, state by state; break each of its rules [BOUNDS="crash=ANY, cancel=1"].
	@$(PY) -m lab.specification $(call option,BOUNDS,bounds)

simulate: $(VENV)/.dev ## Try random schedules of crashes and faults [SCHEDULES=10000] [SEED=…] [PROCESSES=1] [SCENARIO=…]; SEED=seed:number replays one.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.simulation $(call option,SCHEDULES,schedules) $(call option,SEED,seed) \
	  $(call option,PROCESSES,processes) $(call option,SCENARIO,scenario)

mutants: $(VENV)/.dev ## Break the charge protocol in one place after the other: when is it caught? [SEED=…]; WRITE=1 stores the schedules.
	@$(if $(WRITE),STORE_SCHEDULES=1 $(PY) -m pytest -q -n 0 lab/tests -k is_caught,PYTHONPATH=functions:shared:. \
	  $(PY) -m lab.simulation --mutants $(call option,SEED,seed))

experiments: install ## Do the console's ten experiments with two usual workers beside ours: five minutes; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.experiments $(if $(WRITE),--write)

survival: $(VENV)/.dev ## Show which designs survive which faults: onecharge and the designs copied most [SCHEDULES=10000] [SEED=1]; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.survival $(call option,SCHEDULES,schedules) $(call option,SEED,seed) \
	  $(if $(WRITE),--write)

bench: install $(VENV)/.dev $(VENV)/opt/.bench $(VENV)/opt/.dynamodb-local ## What a user pays and waits for, beside what people copy: five minutes [ROUNDS=8]; WRITE=1 keeps the results.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.speed $(call option,ROUNDS,rounds) $(if $(WRITE),--write)

costs: $(VENV)/.dev ## Say what a million paid orders cost on AWS, beside the naive loop.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.costs
