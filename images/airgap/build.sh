#!/bin/sh
# Builds the archive for an air-gapped site, and prints its path: build.sh DIRECTORY PACKAGES
# IMAGES DEFINITIONS. DEFINITIONS is a directory with the Gateway API's standard and experimental
# CRDs and its license.
#
# The archive is reproducible: owners, modes and order are fixed, and timestamps are
# $SOURCE_DATE_EPOCH or the time of the last commit. Its signature is also deterministic.
# $SIGNING_KEY is a file with the private Ed25519 key to sign with.
set -eu
export LC_ALL=C TZ=UTC
umask 022
out=$1 packages=$2 images=$3 definitions=$4
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$(dirname "$here")")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 0)}
name=sesame-$version-$(dpkg --print-architecture)-airgap
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name
mkdir -p "$out" "$tree/packages" "$tree/images" "$tree/cluster/gateway-api" "$tree/licences"

cp "$packages"/*.deb "$packages"/*.tar.gz "$tree/packages/"
cp "$images"/* "$tree/images/"
cp -R "$top/controller/deploy" "$tree/cluster/sesame"
# Pack the chart as `helm package` would.
mv "$tree/cluster/sesame/chart" "$work/sesame"
chmod -R u=rwX,go=rX "$work/sesame"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c sesame |
  gzip -n >"$tree/cluster/sesame-$version.tgz"
for channel in standard experimental; do
  mkdir "$tree/cluster/gateway-api/$channel"
  # Skip kustomization.yaml, which only lists the CRDs.
  for file in "$definitions/$channel"/*.yaml; do
    [ "${file##*/}" = kustomization.yaml ] || cp "$file" "$tree/cluster/gateway-api/$channel/"
  done
done
cp -R "$top/docs" "$tree/docs"
cp "$top/README.md" "$top/ARCHITECTURE.md" "$tree/"
cp "$top/LICENSE" "$tree/licences/sesame"
cp "$top/LICENSE" "$tree/licences/envoy"
cp "$definitions/LICENSE" "$tree/licences/gateway-api"
PYTHONDONTWRITEBYTECODE=1 "$top/images/licences.py" "$top" "$tree/licences/crates"
cp "$here/install.sh" "$tree/install.sh"
chmod -R u=rwX,go=rX "$tree"
chmod 755 "$tree/install.sh"

(cd "$tree" && find . -type f -printf '%P\n' | sort | xargs -d '\n' sha256sum) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$tree/SHA256SUMS"
if [ -n "${SIGNING_KEY:-}" ]; then
  openssl pkeyutl -sign -rawin -inkey "$SIGNING_KEY" -in "$tree/SHA256SUMS" -out "$tree/SHA256SUMS.sig"
fi
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" >"$out/$name.tar.new"
mv "$out/$name.tar.new" "$out/$name.tar"
rm -f "$out/$name.tar.sig"
if [ -n "${SIGNING_KEY:-}" ]; then
  openssl pkeyutl -sign -rawin -inkey "$SIGNING_KEY" -in "$out/$name.tar" -out "$out/$name.tar.sig"
fi
echo "$out/$name.tar"
