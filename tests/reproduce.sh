#!/bin/sh
# reproduce.sh DIRECTORY COMMAND...: runs COMMAND twice, with the output directories DIRECTORY.again
# and DIRECTORY, and fails if their files differ. In COMMAND, `{}` stands for the output directory.
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
