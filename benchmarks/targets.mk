# Included by the Makefile.
.PHONY: survival bench costs

survival: $(VENV)/.dev ## Who survives what: onecharge and the designs copied most [SCHEDULES=10000] [SEED=1]; WRITE=1 keeps the table.
	@PYTHONPATH=functions:shared:. $(PY) -m benchmarks.survival $(call option,SCHEDULES,schedules) $(call option,SEED,seed) \
	  $(if $(WRITE),--write)

bench: install $(VENV)/opt/.bench $(VENV)/opt/.dynamodb-local ## How fast, beside what people copy [ROUNDS=10] [ORDERS=3000] [WARM=1: no build]; WRITE=1, PROFILE=1 keep the results.
	@PYTHONPATH=functions:shared:. $(PY) -m benchmarks.speed $(call option,ROUNDS,rounds) $(call option,ORDERS,orders) \
	  $(if $(WARM),--warm) $(if $(WRITE),--write) $(if $(PROFILE),--profile)

costs: $(VENV)/.dev $(if $(MEASURE),$(VENV)/opt/.emulator $(VENV)/opt/.dynamodb-local) ## Say what a million paid orders cost on AWS, beside the naive loop [MEASURE=1 measures what an order needs anew].
	@PYTHONPATH=functions:shared:. $(PY) -m benchmarks.costs $(if $(MEASURE),--measure)
