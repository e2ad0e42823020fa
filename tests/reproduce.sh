#!/bin/sh
# reproduce.sh DIRECTORY COMMAND...: runs a command twice, each time with a new output directory,
# and fails if the files differ. The argument `{}` is replaced by that directory.
set -eu
directory=$1
shift

run() {
  to=$1
  shift
  for argument in "$@"; do
    shift
    [ "$argument" != '{}' ] || argument=$to
    set -- "$@" "$argument"
  done
  "$@"
}

rm -rf "$directory" "$directory.again"
run "$directory.again" "$@" >/dev/null
run "$directory" "$@"
for file in "$directory"/*; do
  cmp "$file" "$directory.again/${file##*/}"
done
rm -rf "$directory.again"
