# Included by the Makefile.
.PHONY: survival bench costs

survival: $(VENV)/.dev ## Who survives what: onecharge and the designs copied most [SCHEDULES=10000] [SEED=1]; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.survival $(call option,SCHEDULES,schedules) $(call option,SEED,seed) \
	  $(if $(WRITE),--write)

bench: install $(VENV)/.dev $(VENV)/opt/.bench $(VENV)/opt/.dynamodb-local ## What a user pays and waits for, beside what people copy: five minutes [ROUNDS=8]; WRITE=1 keeps the results.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.speed $(call option,ROUNDS,rounds) $(if $(WRITE),--write)

costs: $(VENV)/.dev ## Say what a million paid orders cost on AWS, beside the naive loop.
	@PYTHONPATH=functions:shared:. $(PY) -m lab.costs
