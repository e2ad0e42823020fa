#!/bin/sh
# Builds images with the programs in target/debug, inspects them, and runs them without a network.
# Needs root.
set -eu
cd "$(dirname "$0")/.."
tests/tools.sh cargo cc python3 strip mmdebstrap dpkg-deb runc unshare ip
"${CARGO:-cargo}" build --locked --workspace --bins
images/make.sh --for-tests
exec images/check.py target/images "${SESAME_REVISION:-unknown}"
