#!/bin/sh
# demo.sh serve FLAG...: builds and runs the demo. To be quick, builds only a few crates, without
# optimization. demo.sh check: checks that these crates compile, and then tests the demo in
# target/debug, which is built for other tests anyway. This test has its own network namespace,
# where the demo's ports are free.
set -eu
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}"
programs='--no-default-features --package sesame-agent --package sesame-kit --bins'
if [ "$1" = check ]; then
  # shellcheck disable=SC2086 # Word splitting is intended.
  "$CARGO" check --locked $programs
  exec unshare --user --map-root-user --net sh -c 'ip link set lo up && exec target/debug/demo --check' >/dev/null
fi
shift
tests/tools.sh cargo cc envoy
[ -e target/demo/demo ] || cat <<'TEXT'
This builds sesame-agent and two small backends, which takes about three minutes on two cores the first time and
seconds later, fetches Envoy (50 MB) into .tools, and then serves on 127.0.0.1:8080 and :8443 until Ctrl-C.
TEXT
tests/tools/get.sh envoy
# shellcheck disable=SC2086 # Word splitting is intended.
"$CARGO" build --locked --profile demo $programs
exec target/demo/demo "$@"
