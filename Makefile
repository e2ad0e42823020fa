# `make help` lists the targets. They need Rust, a C compiler, Python 3 with pip and common Debian tools; the tests also need
# Go and Node.js. `make demo` and `make test` first check for the tools that they need. Scripts in tests/tools download and build other
# projects' programs, in the versions that tests/tools/pins sets.
include tests/tools/pins
CARGO ?= cargo
GO ?= go
TOOLS := $(CURDIR)/.tools
# The Envoy to use: $ENVOY, else `envoy` in PATH, else the pinned version.
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
# Keep Python from writing bytecode into the source tree.
export PYTHONDONTWRITEBYTECODE := 1

# Scripts get these variables, and any set on make's command line, such as PROFILE=demo.
RUN = @CARGO="$(CARGO)" GO="$(GO)" TOOLS="$(TOOLS)"
TEST = $(CARGO) test --locked --workspace
# Tests read Cargo's path from CARGO, which nextest does not set.
NEXTEST_RUN = env CARGO=$(CARGO) $(NEXTEST) nextest run --locked
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help demo demo-check test machine-tools machines
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' Makefile
demo: ## Serve tests/data/quickstart with two small backends until Ctrl-C
	$(RUN) tests/demo.sh serve $(DEMO_FLAGS)
test: ## Everything that a change must pass: `check`, every test, the conformance suite, the demo, images, nodes and hosts
	$(RUN) tests/tools.sh cargo rustfmt clippy cc go openssl curl unshare nsenter setpriv ip node npm wheels
	@tests/machine.sh true
	$(RUN) tests/announce.sh
	@set -e; for phase in check unit conformance-run demo-check machines; do \
	  began=$$(date +%s); \
	  $(MAKE) $$phase; \
	  echo "$$phase took $$(( $$(date +%s) - began )) seconds"; \
	done
demo-check: programs ## Run the demo and check the responses to its example requests
	$(RUN) tests/demo.sh check
machine-tools: ## Print the names of the tools that `machines` needs
	@tests/nodes-and-hosts.sh --tools
machines: ## Test images, the archive for air-gapped sites, nodes (some scenarios) and hosts, if nested machines can run here
	$(RUN) tests/nodes-and-hosts.sh

.PHONY: check fmt fmt-check length-check clippy deny doc actionlint regenerate golden crds
check: fmt-check length-check clippy deny doc actionlint ## Check formatting, file lengths, clippy, licenses, documentation and workflows
fmt: ; $(CARGO) fmt --all
fmt-check: ; $(CARGO) fmt --all --check
length-check: ; @tests/lengths.sh
clippy: ; $(CARGO) clippy --locked --workspace --all-targets -- -D warnings
# The advisories check is omitted, because it would have to clone a database.
deny: cargo-deny ; $(CARGO_DENY) --locked --workspace check --hide-inclusion-graph licenses bans sources
doc: ; RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
actionlint: ## Check the GitHub workflows
	cd tests/actionlint && $(GO) tool actionlint $(CURDIR)/.github/workflows/*.yml
# Tests of generated files have names ending in `is_current` or `are_current`, except the tests in `golden`.
regenerate: nextest envoy older-envoy ## Regenerate all generated files; review the diff before you commit
	SESAME_REGENERATE=1 $(NEXTEST_RUN) --workspace --lib --test docs --test envoy_descriptors --test golden \
	  --test telemetry -E 'test(/_(is|are)_current$$/) | binary(=golden)'
golden: envoy older-envoy ## Regenerate only the golden files
	SESAME_REGENERATE=1 $(CARGO) test --locked --package sesame-tests --test golden
crds: ## Regenerate only Sesame's own CRDs
	SESAME_REGENERATE=1 $(CARGO) test --locked --package sesame-controller --lib crds_are_current

.PHONY: unit test-one test-crates test-dashboards test-browser test-spire soak chaos fuzz fuzz-explain test-skew
unit: nextest envoy older-envoy curl-http3 kube helm oidc-provider grpc-web-client pebble programs ## Run every test, with a real Envoy and API server where a test needs one
	$(TEST) --doc
	@# With less frequent garbage collection, API servers need a fifth less CPU to start. Nextest does not run doctests.
	GOGC=400 tests/machine.sh $(NEXTEST_RUN) --workspace
test-one: nextest envoy older-envoy curl-http3 kube oidc-provider grpc-web-client pebble ## Run one test, test file, area or golden case: make test-one NAME=switches
	@test -n "$(NAME)" || { echo 'Name a test, a file of tests or a golden case: make test-one NAME=switches' >&2; exit 2; }
	tests/one.sh $(NAME) $(NEXTEST_RUN)
test-crates: envoy ## Run the crates' unit tests and doctests, without an API server
	$(TEST) --exclude sesame-tests --lib
	$(TEST) --exclude sesame-tests --doc
test-dashboards: envoy kube prometheus programs ## Test dashboards and alerts with a real Prometheus, which takes a few minutes to build
	PROMETHEUS_TOOLS=$(PROMETHEUS_TOOLS) $(TEST) --test telemetry -- monitoring::
test-browser: envoy kube programs ## Test the status pages in a headless browser: SESAME_BROWSER or chromium-headless-shell
	$(TEST) --test telemetry --test controllers -- --ignored page::
test-spire: envoy spire programs ## Test certificate renewal by SPIRE under load; takes ten minutes, including SPIRE's build
	SPIRE_TOOLS=$(SPIRE_TOOLS) $(TEST) --test tls -- --ignored --nocapture spire::
soak: nextest envoy programs ## Run the long form of all tests under load, and print a table of the results (an hour)
	@tests/soak.sh $(NEXTEST_RUN)
chaos: envoy older-envoy kube programs ## Random faults under load for CHAOS_SECONDS=3600, replayable by SESAME_SEED=1; CHAOS_OLDER=v1.0.0 upgrades from a version; CHAOS_FLAGS=--help lists options
	@$(if $(CHAOS_OLDER),older=$$(CARGO="$(CARGO)" tests/older.sh $(CHAOS_OLDER)) &&) \
	  CHAOS_SECONDS=$(or $(CHAOS_SECONDS),3600) SESAME_SEED=$(or $(SESAME_SEED),1) GOGC=400 \
	  tests/machine.sh target/debug/chaos $(if $(CHAOS_OLDER),--older "$$older") $(CHAOS_FLAGS)
fuzz: ## Fuzz everything that the agent reads (FUZZ_SECONDS=600, SESAME_SEED=1), then run fuzz-explain
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(CARGO) test --locked --package sesame-tests --test fuzz -- --nocapture
	@$(MAKE) fuzz-explain
fuzz-explain: envoy programs ## Compare `explain` with a real Envoy: 10,000 requests to random routes (SESAME_SEED=1)
	SESAME_EXPLAIN=$(or $(SESAME_EXPLAIN),10000) $(TEST) --test routes -- --nocapture explain::
test-skew: envoy kube ## Run agents and controllers of other versions with the current ones, under load (REVISIONS="v1.0.0 v1.1.0")
	$(RUN) tests/skew.sh $(REVISIONS)

.PHONY: conformance conformance-run bench bench-cluster bench-fleet
conformance: conformance-run ## Run the Gateway API's conformance suite; CONFORMANCE_FLAGS="-- --run-test=HTTPRouteCORS" runs one test
	@# Only a complete run without failures updates the committed report.
	$(RUN) $(if $(CONFORMANCE_FLAGS),true,tests/conformance/run.sh --keep-report)
conformance-run: envoy kube programs
	$(RUN) tests/conformance/run.sh $(CONFORMANCE_FLAGS)
bench: envoy ## Measure Sesame; prints each result next to the floor of the same run
	$(RUN) tests/bench.sh bench sesame-agent -- $(BENCH_FLAGS)
bench-cluster: envoy kube ## Measure Sesame with a real API server and a controller
	$(RUN) tests/bench.sh bench-cluster sesame-agent sesame-controller -- $(BENCH_FLAGS)
bench-fleet: kube ## Measure what many hosts cost an API server and a controller (BENCH_FLAGS="--hosts 50,100,200" for small fleets)
	$(RUN) tests/bench.sh bench-fleet sesame-controller -- $(BENCH_FLAGS)

.PHONY: packages images images-check airgap airgap-check test-hosts test-nodes docs release release-check release-files clean
packages: ## Build Debian packages and tarballs for a gateway host, in target/packages (PROFILE=demo builds faster)
	$(RUN) systemd/packages/make.sh
images: ## Build images of the agent, Envoy and the controller, in target/images (PROFILE=demo builds faster)
	$(RUN) images/make.sh
images-check: ## Build images of the programs in target/debug and run them without a network; needs root
	$(RUN) images/check.sh
airgap: ## Build the archive for air-gapped sites, in target/airgap; SIGNING_KEY=FILE (ed25519) signs it
	$(RUN) images/airgap/make.sh
airgap-check: ## Check that the archive is reproducible, and that it rejects modified files
	$(RUN) images/airgap/check.sh
test-hosts: ## Test gateway hosts with a real systemd in systemd-nspawn, as root (HOSTS="life reboot" runs only these)
	$(RUN) tests/hosts.sh $(HOSTS)
test-nodes: ## Test nodes with real kubelets under load, as root (NODES="agent drain" runs only these; "archive" installs from it)
	$(RUN) tests/nodes.sh $(NODES)
docs: ## Build the documentation as a website, in target/book; `cargo test --workspace --test docs` checks the pages
	$(RUN) MDBOOK="$(TOOLS)/mdbook-$(MDBOOK_VERSION)/bin/mdbook" tests/book.sh
release: ## Set the version everywhere and date the changelog: make release VERSION=0.2.0
	tests/release.py set $(VERSION)
release-check: ## Fail if a file contains a version other than VERSION
	tests/release.py check $(VERSION)
release-files: ## Collect the files of a release, with checksums; run `make airgap` first
	@tests/release-files.sh
clean: ## Remove everything that was built or downloaded
	rm -rf target .tools tests/data/quickstart/certificate.yaml

FETCHED := envoy older-envoy curl-http3 cargo-deny nextest definitions nodes-tools oidc-provider grpc-web-client pebble prometheus spire mdbook
.PHONY: programs kube helm $(FETCHED)
# Build all programs with the features that the tests use, so that Cargo builds each crate only once.
programs: ; $(CARGO) build --locked --workspace --bins
kube: ## Get the API server, etcd and CRDs for tests; the first build takes a while
	$(RUN) tests/tools/get.sh kube definitions
helm: ## Get Helm and kustomize for tests; the first build takes a while
	$(RUN) tests/tools/get.sh helm
$(FETCHED): ; $(RUN) tests/tools/get.sh $@
