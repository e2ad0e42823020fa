#!/bin/sh
# Builds SPIRE and spiffe-helper, each from its own module with the pinned checksum.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
need "${SPIRE_TOOLS:-$TOOLS/spire-$SPIRE_VERSION-$SPIFFE_HELPER_VERSION}" \
  "SPIRE $SPIRE_VERSION (Go modules: ten minutes)" spire-server spire-agent spiffe-helper
"$tests/tools.sh" cc go python3

# sources MODULE VERSION SUM: prints the directory with a module's sources in Go's module cache.
sources() {
  (cd / && "$GO" mod download -json "$1@$2") | python3 -c \
    'import json, sys; it = json.load(sys.stdin); print(it["Dir"]) if it.get("Sum") == sys.argv[1] else sys.exit(f"{it}: another checksum")' "$3"
}

spire=$(sources github.com/spiffe/spire "$SPIRE_VERSION" "$SPIRE_SUM")
helper=$(sources github.com/spiffe/spiffe-helper "$SPIFFE_HELPER_VERSION" "$SPIFFE_HELPER_SUM")
# The server needs cgo, because SQLite is written in C.
(cd "$spire" && CGO_ENABLED=1 "$GO" build -trimpath -ldflags '-s -w' -o "$new/out/" ./cmd/spire-server)
go_build "$spire" "$new/out/" -ldflags '-s -w' ./cmd/spire-agent
go_build "$helper" "$new/out/" -ldflags '-s -w' ./cmd/spiffe-helper
install_all
