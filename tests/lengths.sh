#!/bin/sh
# Fails if a file has more than 400 lines of code, not counting its tests, or more than 400 lines of
# tests. tests/long.txt lists the files that may have more lines of tests, each with the reason.
set -eu
cd "$(dirname "$0")/.."
find proto controller agent tests -name '*.rs' -not -path '*/target/*' -not -path '*/tests/*' -not -name '*tests.rs' \
  -exec awk 'FNR == 1 { tests = 0 } /^#\[cfg\(test\)\]/ { tests = 1 }
    !tests && FNR == 401 { print FILENAME ": more than 400 lines without its tests"; bad = 1 }
    END { exit bad }' {} +
find proto controller agent tests '(' -path '*/tests/*.rs' -o -name '*tests.rs' ')' -not -path '*/target/*' \
  -exec awk 'NR == FNR { long[$1] = 1; next }
    FNR == 401 && !(FILENAME in long) { print FILENAME ": more than 400 lines of tests, and not in tests/long.txt"; bad = 1 }
    END { exit bad }' tests/long.txt {} +
