#!/bin/sh
# Builds Prometheus and promtool without cloud service discovery, which is most of their code.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
version=$(go_pin prometheus/go.mod github.com/prometheus/prometheus)
commands=github.com/prometheus/prometheus/cmd
need "${PROMETHEUS_TOOLS:-$TOOLS/prometheus-$version}" "Prometheus $version (Go modules: a few minutes)" prometheus promtool
go_build "$tests/prometheus" "$new/out/" -tags remove_all_sd -ldflags '-s -w' $commands/prometheus $commands/promtool
install_all
