# Needs Python 3.11+ and make, nothing else: everything more is installed into .venv from the lock files.
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
VENV := .venv/bin/python
UV := var/uv/bin/uv
PIP_AUDIT := var/pip-audit/bin/pip-audit
COMPILE := $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url pyproject.toml
DEPLOYED := DEBUG=false DATABASE_URL=sqlite://:memory: PUBLIC_URL=https://gateway.example ALLOWED_HOSTS=gateway.example
# For two cores: tests wait more than they compute.
WORKERS ?= 4
ARGS ?=

# Installed already? The stamp is a copy of the lock file and is compared by content: a checkout that only touches
# times reinstalls nothing, and cmp costs a millisecond. Both stamps go first, so that an interrupted installation is
# repeated, and so that going back to another lock is noticed. The development lock contains the other.
install = rm -f .venv/installed-*.txt; all=$$(grep -c == $(1)); echo "Installing $(1) into .venv:"; \
	{ PYTHONUNBUFFERED=1 $(VENV) -m pip install --progress-bar off --disable-pip-version-check --require-hashes -r $(1); \
		echo "status $$?"; } | { n=0; while read -r word name rest; do case $$word in \
			Ignoring) all=$$((all - 1));; \
			Collecting | Processing | Requirement) n=$$((n + 1)); echo "  fetching package $$n of $$all";; \
			Installing) echo "  unpacking $$all packages";; \
			status) exit $$name;; \
		esac; done; }
# The development lock is four times as long, and uv three times as fast as pip. pip it is where uv cannot be had.
install-dev = rm -f .venv/installed-*.txt; echo "Installing requirements-dev.txt into .venv:"; \
	$(MAKE) --no-print-directory --silent $(UV) && $(UV) pip install --quiet --python $(VENV) --require-hashes -r requirements-dev.txt

.PHONY: help
help: ## Print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target text; do printf '  make %-14s %s\n' "$$target" "$$text"; done

.PHONY: run
run: venv-run var/secret_key ## Start the demo: gateway, simulated provider, an account with credit (PORT=8000)
	@exec $(VENV) manage.py run_demo

.PHONY: test
test: venv-dev var/secret_key ## Run every test on PostgreSQL, some on SQLite and with the fast path off too (ARGS="-k name", WORKERS=4)
	@$(VENV) -m tests.suite --workers $(WORKERS) $(ARGS)

.PHONY: quick
quick: venv-dev var/secret_key ## Run the tests that need no server of their own, within a minute (ARGS="-k name", WORKERS=4)
	@$(VENV) -m tests.suite --quick --workers $(WORKERS) $(ARGS)

.PHONY: campaign
campaign: venv-dev var/secret_key ## Run what takes minutes: coding agents, made-up requests, every page in a browser, upgrades (ARGS="-k name")
	$(VENV) -m pytest -m campaign -o faulthandler_timeout=0 $(ARGS)

.PHONY: flakes
flakes: venv-dev var/secret_key ## Run each module that starts servers ten times beside busy loops; prints what failed (ARGS="--times 3")
	@$(VENV) -m tests.flakes $(ARGS)

.PHONY: soak
soak: venv-dev var/secret_key ## Load on two gateways while everything fails, then compare the books (SOAK_MINUTES=5 SOAK_SEED=…)
	$(VENV) -m pytest -m soak -o faulthandler_timeout=0 -s $(ARGS) tests/soak

.PHONY: replay
replay: venv-dev var/secret_key ## Play recorded answers of real providers through a gateway and compare (ARGS="--database postgres --workers 2")
	@$(VENV) -m tests.replay $(ARGS)

.PHONY: mutants
mutants: venv-dev var/secret_key ## Break a copy of the tree in some 100 ways, each of which a test must notice (ARGS="money spool")
	@$(VENV) -m tests.mutants $(ARGS)

.PHONY: cluster-campaign
cluster-campaign: venv-dev var/secret_key var/patroni ## Kill each part of deploy/cluster in turn under load, then compare; upgrade two gateways under load
	$(VENV) -m pytest -m cluster --database postgres -s -o faulthandler_timeout=0 tests/test_cluster.py tests/test_upgrade.py $(ARGS)

.PHONY: fuzz
fuzz: venv-dev var/secret_key ## All made-up cases: HTTP, bodies, addresses, pages, upstreams, catalogues, and of each property
	FUZZ_FACTOR=10 $(VENV) -m pytest -o faulthandler_timeout=0 -m "hypothesis and not campaign" $(ARGS)

.PHONY: bench
bench: venv-dev var/secret_key ## Measure beside a bare pass-through, and reads of a million records (BENCH_RECORDS=5000000)
	@$(VENV) -m bench

.PHONY: bench-gate
bench-gate: venv-dev var/secret_key ## Fail where a request takes more instructions than bench/budget.json allows (ARGS=--update)
	@$(VENV) -m bench.gate $(ARGS)

.PHONY: failover-bench
failover-bench: venv-dev var/secret_key ## FailoverBench's 16 scenarios against a gateway, a minute and a half
	@$(VENV) -m bench.failover

# The newest list that a package index has is in litellm's wheel.
.PHONY: catalogue-check
catalogue-check: venv-run var/secret_key ## Tell what of the shipped catalogue is dead or sold below cost, and what is new (LIST=list or wheel of litellm's)
	@test -n "$(LIST)" || { rm -rf var/prices && \
		$(VENV) -m pip download --quiet --disable-pip-version-check --no-deps --dest var/prices litellm; }
	@$(VENV) manage.py import_prices litellm $(or $(LIST),var/prices/litellm-*.whl) --check

.PHONY: figures
figures: venv-dev var/secret_key ## Measure the figures of README and docs again, and fail where a document says another, four minutes
	@$(VENV) -m bench.figures

.PHONY: size
size: venv-dev var/secret_key ## Print the lines of code by app, and the rooms and modules that a completion runs through
	@$(VENV) -m bench.size

.PHONY: screenshots
screenshots: venv-dev var/secret_key ## Picture every page, light, dark and on a phone, in var/screenshots
	@$(VENV) -m tests.screenshots $(ARGS)

.PHONY: check
check: venv-dev var/secret_key ## Formatter, linter, types, layers, missing migrations, deployment settings, audit
	$(VENV) -m ruff format --check .
	$(VENV) -m ruff check .
	$(VENV) -m mypy >var/mypy.log 2>&1 & types=$$!; \
	.venv/bin/lint-imports --no-logo && $(DEPLOYED) $(VENV) manage.py makemigrations --check --dry-run && \
		$(DEPLOYED) $(VENV) manage.py check --deploy --fail-level WARNING && $(MAKE) --no-print-directory audit; others=$$?; \
	wait $$types; types=$$?; cat var/mypy.log; exit $$((others || types))

.PHONY: audit
audit: ## Fail where a locked package has a known vulnerability; say so where that cannot be looked up
	@test -x $(PIP_AUDIT) || { $(MAKE) --no-print-directory --silent $(UV) && $(UV) venv --quiet --clear var/pip-audit && \
		$(UV) pip install --quiet --python var/pip-audit/bin/python pip-audit; } || \
		{ rm -rf var/pip-audit; echo "Not audited: pip-audit cannot be installed from here."; exit 0; }; \
	$(PYTHON) .ci/audit $(PIP_AUDIT)

.PHONY: format
format: venv-dev ## Format the code and apply the linter's safe fixes
	$(VENV) -m ruff format .
	$(VENV) -m ruff check --fix .

.PHONY: lock
lock: $(UV) ## Write the lock files from pyproject.toml (ARGS=--upgrade for newer versions)
	$(COMPILE) --quiet $(ARGS) -o requirements.txt
	$(COMPILE) --extra traces -c requirements.txt --quiet $(ARGS) -o requirements-traces.txt
	$(COMPILE) --extra traces --group dev -c requirements-traces.txt --quiet $(ARGS) -o requirements-dev.txt

.PHONY: clean
clean: ## Remove the virtualenv and every cache; the data in var/ stays
	rm -rf .venv var/uv var/pip-audit .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: venv-run
venv-run: $(VENV)
	@cmp -s requirements.txt .venv/installed-run.txt || { \
		$(call install,requirements.txt) && cp requirements.txt .venv/installed-run.txt; }

.PHONY: venv-dev
venv-dev: $(VENV)
	@cmp -s requirements-dev.txt .venv/installed-dev.txt || { \
		{ $(install-dev) || { $(call install,requirements-dev.txt); }; } && cp requirements.txt .venv/installed-run.txt && \
		cp requirements-dev.txt .venv/installed-dev.txt; }

$(VENV):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " \
		+ sys.version.split()[0] + ": name another one with PYTHON=/path/to/python3")'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(UV): | $(VENV)
	@$(VENV) -m pip install --quiet --disable-pip-version-check --target var/uv uv

# By the system's Python: PostgreSQL's user, who runs it, may not be allowed to read another's.
var/patroni:
	@/usr/bin/python3 -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check 'patroni[etcd3]' 'psycopg[binary]'

# Written aside and linked into place: complete or absent, and a key that is there is never replaced.
var/secret_key:
	@mkdir -p var
	@umask 077 && $(VENV) -c 'import secrets; print(secrets.token_urlsafe(48))' >$@.$$$$ && \
		{ ln $@.$$$$ $@ 2>/dev/null || test -f $@; }; status=$$?; rm -f $@.$$$$; exit $$status
