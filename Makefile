# make demo    a year of real flights, embedded, as a job here, and on Spark     make test   everything that must hold
# make demo-kafka  the same flights through a broker of Kafka into Delta tables
# make bench   how fast, against what                                          make lock   choose newer packages
# make torture kills, random deployments, a million broken inputs (hours)      make soak   an hour at half of the highest rate
# make simulate  whole jobs in worlds where every call out of the process may fail, each from a seed (SEEDS=1000)
# make real      the same stories with real processes, killed, on this machine's disk (SEEDS=100)
# make mutants  small changes of product code: which of them the tests notice (an hour and a half)
# make compat  small jobs on several versions of PySpark, each installed under build/ (COMPAT="4.0.5" for some)
# make docs    the tables of the documents and the grammar for editors, from the language's own tables
# Each is sufficient alone: the first run makes .venv, later ones start at once.

PYTHON ?= python3
python := .venv/bin/python
# Two more than processors, four at most: tests of jobs wait for clocks, brokers and the start of a JVM.
cores := $(shell getconf _NPROCESSORS_ONLN)
workers := --numprocesses=$(shell echo $$(($(cores) < 2 ? 3 : 4))) --dist=loadfile --no-loadscope-reorder
without_waits := --numprocesses=$(shell echo $$(($(cores) < 4 ? $(cores) : 4))) --dist=loadfile --no-loadscope-reorder
as_plain_python := tests/conformance/test_published.py tests/conformance/test_limits_of_time.py tests/runtime/matching \
	tests/differential/test_patterns.py tests/differential/test_streams.py tests/differential/test_time_patterns.py
sources := querylang runtime job_engine spark_backend ensue tests benchmarks tools

# Packages are installed without bytecode: a process that may not write it compiles all that it imports, every time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-kafka test lint bench torture simulate real simulate-mutants hunt soak mutants compat docs lock format clean
.DELETE_ON_ERROR:

demo: .venv/.ready
	@$(python) -m ensue.demo

demo-kafka: .venv/.ready
	@$(python) -m tools.kafka_demo

test: .venv/.ready
	@$(python) -m tools.class_archive & archive=$$!; $(MAKE) --no-print-directory lint && wait $$archive
	@$(python) -m pytest $(workers) $(PYTEST)
	@$(if $(PYTEST),,ENSUE_COMPILE=never $(python) -m pytest $(without_waits) --quiet --streams=10 $(as_plain_python))

lint: .venv/.ready
	@$(python) -m ruff format --check --quiet $(sources)
	@$(python) -m ruff check --quiet $(sources)
	@$(python) -m codespell_lib
	@$(python) -m mypy --no-error-summary

bench: .venv/.ready
	@$(python) -m benchmarks

peers: .venv/.ready
	@$(python) -m benchmarks.peers --docs $(PEERS)

torture: .venv/.ready
	@$(python) -m tests.torture $(TORTURE)
	@$(python) -m tests.torture --kills 20 --rows 10000 --compact
	@$(python) -m tests.torture --kills 20 --rows 10000 --changes 0.3
	@$(python) -m tests.torture --engine local $(TORTURE)
	@$(python) -m tests.torture --engine local --kills 50 --rows 15000 --sink delta
	@$(python) -m tests.torture --engine local --kills 50 --rows 15000 --changes 0.3
	@$(python) -m tests.torture --engine local --kills 20 --rows 10000 --compact
	@$(python) -m tests.torture.deployments
	@ENSUE_ENGINE=local $(python) -m tests.torture.deployments
	@$(python) -m tests.torture.chained --cases 10 --engine spark
	@$(python) -m tests.torture.chained --cases 40 --engine local
	@$(python) -m tests.torture.topics
	@$(python) -m tests.torture.topics 40 local
	@$(python) -m tests.torture.hostile

simulate: .venv/.ready
	@ENSUE_THREADS=1 $(python) -W ignore -m tests.simulation --seeds $(or $(SEEDS),1000) $(SIMULATE)

real: .venv/.ready
	@$(python) -W ignore -m tests.simulation.real --seeds $(or $(SEEDS),100) $(REAL)

hunt: .venv/.ready
	@ENSUE_THREADS=1 $(python) -W ignore -m tests.differential --pairs $(or $(PAIRS),10000)
	@ENSUE_THREADS=1 $(python) -W ignore -m tests.simulation.hunt $(HUNT)

simulate-mutants: .venv/.ready
	@$(python) -m tests.simulation.mutants $(MUTANTS)

soak: .venv/.ready
	@$(python) -m tests.torture.soak $(SOAK)

mutants: .venv/.ready
	@$(python) -m tests.mutation $(MUTANTS)

compat: .venv/.ready
	@$(python) tools/compatibility.py $(COMPAT)

docs: .venv/.ready
	@$(python) tools/editors.py
	@$(python) -m tools.reference

format: .venv/.ready
	@$(python) -m ruff format $(sources)
	@$(python) -m ruff check --fix $(sources)

lock: .venv/.ready
	@$(python) tools/lock.py

.venv/.ready: requirements.lock pyproject.toml tools/setup.sh
	@PYTHON=$(PYTHON) tools/setup.sh

clean:
	rm -rf build dist .venv
	find runtime -name __pycache__ -type d -prune -exec rm -rf {} +
