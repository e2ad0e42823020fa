#!/bin/sh
# one.sh NAME COMMAND…: builds the programs, and the tests that NAME selects. Runs these tests with
# COMMAND, such as `cargo nextest run`. NAME is a test, a golden case, or an area (a directory of
# tests/tests). It can also be a test file, optionally followed by `::` and a test.
set -eu
cd "$(dirname "$0")/.."
name=$1
shift
: "${CARGO:=cargo}"
module=${name%%::*}
function=${name##*::}

# Paths of all matches, one per line.
found=$({
  find tests/tests -name "$module.rs" -o -type d -name "$module"
  find tests/golden -mindepth 1 -maxdepth 1 -name "$module" -printf 'tests/tests/golden\n'
  grep -rlE "^ *(async )?fn $function\b" --include='*.rs' tests proto controller agent || true
  find proto controller agent -path '*/src/*' -name "$module.rs"
} 2>/dev/null)

path=$(printf '%s\n' "$found" | head -n 1)
case $path in
  '')
    echo "no test, test file or golden case is named $name" >&2
    exit 2
    ;;
  tests/tests/*)
    area=${path#tests/tests/}
    area=${area%%/*}
    area=${area%.rs}
    $CARGO build --locked --package sesame-agent --package sesame-controller --package sesame-tests --bins --test "$area"
    set -- "$@" --test "$area"
    ;;
  *)
    set -- "$@" --lib
    for manifest in $(printf '%s\n' "$found" | sed -n 's|/src/.*|/Cargo.toml|p' | sort -u); do
      set -- "$@" --package "$(sed -n 's/^name = "\(sesame-.*\)"/\1/p' "$manifest" | head -n 1)"
    done
    ;;
esac
# For an area, run all tests.
if [ -e "tests/tests/$name/main.rs" ] || [ -e "tests/tests/$name.rs" ]; then name=; fi
# shellcheck disable=SC2086 # An empty $name must not become an argument.
# Without `--package sesame-tests`, Cargo would rebuild crates with different features.
exec tests/machine.sh "$@" --package sesame-tests $name
