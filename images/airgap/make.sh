#!/bin/sh
# Builds the packages, the images and the archive for air-gapped sites, in target/airgap, for
# `make airgap`. $SIGNING_KEY is a file with the private Ed25519 key to sign with.
set -eu
cd "$(dirname "$0")/../.."
# shellcheck disable=SC2046 # Word splitting is intended.
tests/tools.sh cargo cc python3 go dpkg-deb dpkg-shlibdeps strip \
  $([ -n "${BASE:-}" ] || echo mmdebstrap) $([ -z "${SIGNING_KEY:-}" ] || echo openssl) envoy
systemd/packages/make.sh
images/make.sh
definitions=$(tests/tools/definitions.sh newest)
tests/reproduce.sh target/airgap images/airgap/build.sh '{}' target/packages target/images "$definitions"
[ -n "${SIGNING_KEY:-}" ] ||
  echo 'NOT SIGNED: who gets it cannot tell whether it is yours. SIGNING_KEY=FILE signs it.' >&2
