#!/bin/sh
# Builds the images: build.sh OUT ARCH=DIRECTORY... Each DIRECTORY contains sesame-agent,
# sesame-controller and envoy for that architecture. Needs python3 and strip. Unless $BASE is set,
# also needs mmdebstrap and dpkg-deb.
#
# $BASE is an image archive or a tar of a root file system to build on. Without it, the base comes
# from the Debian release $SUITE; the programs must run with its C library. $IMAGE_LEVEL is the
# compression level, 1 to 9. $PROFILE and $ENVOY_VERSION are only recorded as metadata.
# If Envoy can run on this machine, the version that it reports takes precedence.
set -eu
export LC_ALL=C TZ=UTC
umask 022
out=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
suite=${SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch ARCH DIRECTORY: fetches the base's Debian packages, from this machine's mirrors if the
# machine runs the same release.
fetch() {
  mkdir -p "$2"
  # shellcheck disable=SC2016 # mmdebstrap sets $1.
  mmdebstrap --quiet --variant=extract --format=null --architectures="$1" \
    --include=base-files,ca-certificates,libc6,libgcc-s1 \
    --extract-hook='cp "$1"/var/cache/apt/archives/*.deb '"'$2'" "$suite" - >/dev/null
}

stages=
for pair in "$@"; do
  arch=${pair%%=*} from=${pair#*=} stage=$work/$arch
  mkdir "$stage"
  case $arch in
    "$(dpkg --print-architecture 2>/dev/null)")
      strip=strip
      ENVOY_VERSION=$("$from/envoy" --version | sed -n 's|.*version: [^/]*/\([^/]*\)/.*|\1|p')
      ;;
    arm64) strip=aarch64-linux-gnu-strip ;;
    amd64) strip=x86_64-linux-gnu-strip ;;
  esac
  for program in sesame-agent sesame-controller; do
    "$strip" --strip-unneeded --remove-section=.comment -o "$stage/$program" "$from/$program"
  done
  cp "$from/envoy" "$stage/envoy"
  [ -n "${BASE:-}" ] || fetch "$arch" "$stage/debs"
  stages="$stages --stage $arch=$stage"
done

# Build twice, to detect images that depend on anything other than their input.
build() {
  # shellcheck disable=SC2086 # Word splitting is intended.
  python3 "$here/build.py" --out "$1" $stages --epoch "$SOURCE_DATE_EPOCH" --revision "${SESAME_REVISION:-unknown}" \
    --envoy-version "$ENVOY_VERSION" --profile "$PROFILE" --level "${IMAGE_LEVEL:-6}" ${BASE:+--base "$BASE"}
}
rm -rf "$out" "$out.again"
build "$out.again" >/dev/null
build "$out"
for file in "$out"/*; do
  cmp "$file" "$out.again/${file##*/}" || exit 1
done
rm -rf "$out.again"
