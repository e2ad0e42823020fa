#!/bin/sh
# run.sh FLAG...: builds the Gateway API conformance suite, and runs it against the programs in
# target/debug. run.sh --keep-report copies the report from the last run to the documentation.
#
# $CONFORMANCE is the suite's release: v1.7, pinned in go.mod, or v1.6, pinned in v1.6.mod. Both are
# built with the Go toolchain that go.mod names; Go downloads this toolchain as a module.
# $CONFORMANCE_CHANNEL is the CRDs' release channel.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=${here%/tests/conformance}
release=${CONFORMANCE:-v1.7} channel=${CONFORMANCE_CHANNEL:-experimental}
target=target/conformance/$release-$channel
case $release in
  v1.7) pins=go.mod echo=sigs.k8s.io/gateway-api-conformance-images/echo-basic ;;
  v1.6) pins=v1.6.mod echo=sigs.k8s.io/gateway-api/conformance/echo-basic ;;
  *)
    echo "CONFORMANCE is v1.7 or v1.6, not $release" >&2
    exit 2
    ;;
esac
if [ "${1:-}" = --keep-report ]; then
  install -D -m 644 "$top/$target/report.yaml" "$top/docs/conformance/$release/$channel-default-report.yaml"
  exit
fi

cd "$top"
mkdir -p "$target"
toolchain=$(sed -n 's|^toolchain ||p' "$here/go.mod")
run_go() (
  cd "$here" || exit
  command=$1
  shift
  CGO_ENABLED=0 GOTOOLCHAIN=$toolchain exec "${GO:-go}" "$command" -modfile=$pins -trimpath "$@"
)
run_go build -o "$top/$target/" ./nodes $echo
run_go test -c -o "$top/$target/suite" ./suite
version=$(sed -n 's|^[[:space:]]*sigs.k8s.io/gateway-api \(v[^ ]*\).*|\1|p' "$here/$pins")
exec target/debug/conformance --directory "$target" --release "$version" --channel "$channel" "$@"
