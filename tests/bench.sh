#!/bin/sh
# bench.sh BENCHMARK PROGRAM... -- FLAG...: builds a benchmark and the measured programs in release
# mode, then runs the benchmark with the flags.
set -eu
cd "$(dirname "$0")/.."
benchmark=$1
shift
packages="--package sesame-tests --bin $benchmark"
while [ "$1" != -- ]; do
  packages="$packages --package $1 --bin $1"
  shift
done
shift
# shellcheck disable=SC2086 # Word splitting is intended.
"${CARGO:-cargo}" build --locked --release $packages
exec "target/release/$benchmark" "$@"
