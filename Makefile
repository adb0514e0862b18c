# The menu: every line is one that can be typed by hand, inside the project's environment.
.PHONY: help setup constraints stubs stubs-check proto lint format types contracts test slow deploy-check check up down

# The last tag; until the first one the schema may be reshaped.
BASE ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
comma := ,

help:         ## this list
	@sed -n 's/^\([a-z-]*:\) *\(.*\)##/\1 /p' Makefile
setup:        ## everything a contributor needs
	python -m pip install -c constraints.txt -e '.[server,torch,dev]'
constraints:  ## pin what is installed here (every extra but cuda), of any build
	{ sed -n '/^#/p' constraints.txt; python -m pip freeze --exclude-editable | sed 's/+[a-z0-9.]*$$//'; } > constraints.new
	mv constraints.new constraints.txt
stubs:        ## write client/haversack/v1 from proto/
	scripts/generate_stubs.sh
stubs-check:  ## are the committed stubs what proto/ says?
	scripts/generate_stubs.sh --check
proto:        ## is the schema tidy, and still readable by yesterday's clients?
	buf format --diff --exit-code proto
	buf lint proto
	$(if $(BASE),buf breaking proto --against '.git#ref=$(BASE)$(comma)subdir=proto')
lint:         ## style
	ruff check .
	ruff format --check .
format:       ## mend what can be mended
	ruff check --fix .
	ruff format .
	buf format --write proto
types:        ## mypy strict; pyright as editors show it
	mypy
	pyright
contracts:    ## who may import whom
	lint-imports
test:         ## a developer's loop
	pytest
slow:         ## what else CI runs: a real Prometheus, real wheels
	pytest -m slow
deploy-check: ## image, compose file, scrape configuration, rules and their cases
	hadolint deploy/Dockerfile
	docker-compose config --quiet
	promtool check config deploy/prometheus/prometheus.yml
	promtool test rules tests/unit/deploy/alerts.test.yml
check: proto lint types contracts test deploy-check ## before you push
up:           ## server, Prometheus and Grafana; http://localhost:3000
	docker compose up --build
down:         ## stop them; the volumes stay
	docker compose down
