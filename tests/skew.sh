#!/bin/sh
# skew.sh REVISION...: builds the programs from the given Git revisions, and runs them together with
# the current programs, under load.
set -eu
cd "$(dirname "$0")/.."
tests/tools.sh cargo cc
if [ $# = 0 ]; then
  echo 'Name the versions: make test-skew REVISIONS="v1.0.0 v1.1.0"' >&2
  exit 2
fi
: "${CARGO:=cargo}"
OLDER_VERSIONS=
for revision in "$@"; do
  programs=$(tests/older.sh "$revision")
  OLDER_VERSIONS=${OLDER_VERSIONS:+$OLDER_VERSIONS:}$programs
done
export OLDER_VERSIONS
"$CARGO" build --locked --workspace --bins
exec "$CARGO" test --locked --workspace --test clusters -- --nocapture skew::
