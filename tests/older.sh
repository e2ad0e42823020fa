#!/bin/sh
# older.sh REVISION: builds the programs from a Git revision, and prints the directory with them.
set -eu
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}"
skew=$PWD/target/skew
revision=$1
tree=$skew/sources/$revision programs=$skew/programs/$revision
[ -d "$tree" ] || git worktree add --detach "$tree" "$revision" >&2
(cd "$tree" && CARGO_TARGET_DIR=$skew/build "$CARGO" build --locked --workspace --bins) >&2
mkdir -p "$programs"
cp "$skew/build/debug/sesame-agent" "$skew/build/debug/sesame-controller" "$programs/"
echo "$programs"
