#!/bin/sh
# Collects, in target/release-files, everything that a release publishes: the files, their checksums
# and the release notes. Run `make airgap` first.
set -eu
cd "$(dirname "$0")/../target"
rm -rf release-files
mkdir release-files
cp packages/* images/* airgap/* release-files/
tar -xf airgap/*.tar -C release-files --strip-components=2 --wildcards '*/cluster/sesame-*.tgz'
(cd release-files && sha256sum -- * >SHA256SUMS)
../tests/release.py notes "$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -n 1)" >release-notes.md
