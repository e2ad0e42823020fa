#!/bin/sh
# Builds the packages and tarballs for a gateway host, in target/packages, for `make packages`.
#
# $PROFILE is the Cargo profile: `release`, or `demo` and `dev`, which build faster. $PROGRAMS is a
# directory with prebuilt programs to use instead.
set -eu
cd "$(dirname "$0")/../.."
: "${CARGO:=cargo}" "${PROFILE:=release}" "${PROGRAMS:=}"
tests/tools.sh cargo cc dpkg-deb dpkg-shlibdeps strip envoy
tests/tools/get.sh envoy
case $PROFILE in
  dev) built=target/debug ;;
  *) built=target/$PROFILE ;;
esac
[ -n "$PROGRAMS" ] || "$CARGO" build --locked --profile "$PROFILE" --package sesame-agent --bin sesame-agent
exec tests/reproduce.sh target/packages systemd/packages/build.sh "${PROGRAMS:-$built}/sesame-agent" "$ENVOY" '{}'
