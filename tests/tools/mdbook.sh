#!/bin/sh
# Builds mdbook with little optimization, because optimizing would take longer than it saves.
# Enables only the `search` feature.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
need "$TOOLS/mdbook-$MDBOOK_VERSION" "mdbook $MDBOOK_VERSION (crates.io)" bin/mdbook
CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
  CARGO_PROFILE_RELEASE_DEBUG=0 "$CARGO" install mdbook --version "$MDBOOK_VERSION" --locked \
  --no-default-features --features search --root "$new/out" --target-dir "$new/build"
install_all
