#!/bin/sh
# Builds the programs and the images, in target/images, for `make images`. With --for-tests, uses
# the programs in target/debug and the fastest compression.
#
# $PROFILE is the Cargo profile: `release`, or `demo` and `dev`, which build faster. $PROGRAMS is a
# directory with prebuilt programs to use instead, for this machine's architecture. $ARCHES lists
# the architectures; docs/images.md lists the tools for cross-compilation. For more variables, see
# build.sh.
set -eu
cd "$(dirname "$0")/.."
native=$(dpkg --print-architecture 2>/dev/null || true)
if [ "${1:-}" = --for-tests ]; then
  export PROFILE=dev PROGRAMS=target/debug IMAGE_LEVEL=1
fi
: "${CARGO:=cargo}" "${TOOLS:=$PWD/.tools}" "${PROFILE:=release}" "${PROGRAMS:=}" "${ARCHES:=$native}"
# shellcheck source=tests/tools/pins
. tests/tools/pins
# shellcheck disable=SC2046 # Word splitting is intended.
tests/tools.sh cargo cc python3 strip $([ -n "${BASE:-}" ] || echo dpkg-deb mmdebstrap) envoy
tests/tools/get.sh envoy
case $PROFILE in
  dev) directory=debug ;;
  *) directory=$PROFILE ;;
esac

build() {
  "$CARGO" build --locked --profile "$PROFILE" --package sesame-agent --package sesame-controller --bins "$@"
}

# Builds the programs for another architecture with Debian's cross toolchain: cross ARCH
cross() {
  case $1 in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *)
      echo "ARCHES: $1 is not amd64 or arm64" >&2
      exit 2
      ;;
  esac
  triple=$machine-unknown-linux-gnu
  tests/tools.sh "$machine-linux-gnu-gcc" "$machine-linux-gnu-strip"
  tests/tools/get.sh "envoy-$1"
  variable=CARGO_TARGET_$(echo "$triple" | tr a-z- A-Z_)_LINKER
  export "$variable=$machine-linux-gnu-gcc"
  build --target "$triple"
  built=$PWD/target/$triple/$directory program=$TOOLS/envoy-$ENVOY_VERSION-$1/envoy
}

stages=
for arch in $ARCHES; do
  if [ "$arch" = "$native" ]; then
    [ -n "$PROGRAMS" ] || build
    built=$(realpath "${PROGRAMS:-target/$directory}") program=$ENVOY
  else
    cross "$arch"
  fi
  stage=target/image-programs/$arch
  mkdir -p "$stage"
  ln -sf "$built/sesame-agent" "$built/sesame-controller" "$stage/"
  ln -sf "$program" "$stage/envoy"
  stages="$stages $arch=$stage"
done
export PROFILE ENVOY_VERSION
# shellcheck disable=SC2086 # Word splitting is intended.
exec images/build.sh target/images $stages
