#!/bin/sh
# Builds Pebble, a small ACME server for tests, and its DNS server.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
version=$(go_pin pebble/go.mod github.com/letsencrypt/pebble/v2)
commands=github.com/letsencrypt/pebble/v2/cmd
need "$TOOLS/pebble-$version" "Pebble $version (Go modules)" pebble pebble-challtestsrv
go_build "$tests/pebble" "$new/out/" -ldflags '-s -w' $commands/pebble $commands/pebble-challtestsrv
install_all
