#!/bin/sh
# Fetches the Gateway API CRDs that tests install. definitions.sh newest: fetches only the newest
# release's CRDs, for the air-gap archive, and prints their directory.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
newest=$(go_pin conformance/go.mod sigs.k8s.io/gateway-api)
previous=$(go_pin conformance/v1.6.mod sigs.k8s.io/gateway-api)
releases="$OLDEST_GATEWAY_API $previous"
[ "${1:-}" != newest ] || releases=
for release in $releases $newest; do
  directory=$TOOLS/gateway-api-$release
  [ ! -e "$directory/LICENSE" ] || continue
  if [ -n "$MISSING" ]; then
    echo '  the definitions of the Gateway API (Go modules)'
    exit 0
  fi
  eval "sum=\${GATEWAY_API_SUM_$(echo "${release#v}" | tr . _):-}"
  [ -n "$sum" ] || fail "pins has no checksum of the Gateway API $release"
  echo "getting the definitions of the Gateway API $release (Go modules)" >&2
  mkdir -p "$TOOLS"
  GO=$GO "$here/definitions.py" "$release" "$sum" "$directory"
done
[ "${1:-}" != newest ] || echo "$directory"
