#!/bin/sh
# soak.sh COMMAND...: runs the long version of the load tests with COMMAND, such as `cargo nextest
# run`, and prints a table with the results. .config/nextest.toml lists these tests. `make test`
# runs the same tests with fewer repetitions.
set -eu
cd "$(dirname "$0")/.."
SESAME_FIGURES=$PWD/target/soak.md
export SESAME_FIGURES
printf '%s\n' '| scenario | requests | failed | causes | longest gap |' '|---|---|---|---|---|' >"$SESAME_FIGURES"
status=0
SESAME_SOAK=1 "$@" --workspace --profile soak --no-capture || status=$?
echo
cat "$SESAME_FIGURES"
exit $status
