#!/bin/sh
# Checks that the archive is reproducible, and that install.sh rejects archives that are incomplete,
# modified or not signed with the key, and reports the reason. All packages and images are small
# dummy files; other tests install real ones.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tests=$here/../../tests
"$tests/tools.sh" cargo python3 go dpkg-deb openssl
definitions=$("$tests/tools/definitions.sh" newest)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages" "$work/images"
echo package >"$work/packages/sesame-agent_0_all.deb"
echo package >"$work/packages/sesame-agent_0_all.tar.gz"
echo image >"$work/images/sesame-agent_0_all.oci.tar"
for key in ours theirs; do
  openssl genpkey -algorithm ed25519 -out "$work/$key.key"
  openssl pkey -in "$work/$key.key" -pubout -out "$work/$key.pub"
done

build() {
  SIGNING_KEY=$2 "$here/build.sh" "$work/$1" "$work/packages" "$work/images" "$definitions"
}
archive=$(build once "$work/ours.key")
for file in "$archive" "$archive.sig"; do
  again=$work/twice/${file##*/}
  [ -e "$again" ] || build twice "$work/ours.key" >/dev/null
  cmp "$file" "$again"
done
unsigned=$(build unsigned "")

# Unpacks an archive into a fresh directory.
unpack() {
  rm -rf "$work/tree"
  mkdir "$work/tree"
  tar -C "$work/tree" --strip-components 1 -xf "$1"
}

# Runs install.sh and checks its exit status and output: expect STATUS WORDS ARGUMENT...
expect() {
  wanted=$1 words=$2
  shift 2
  status=0
  "$work/tree/install.sh" "$@" >"$work/said" 2>&1 || status=$?
  if [ "$status" != "$wanted" ] || ! grep -qF -e "$words" "$work/said"; then
    echo "install.sh $*: status $status, not $wanted with “$words”:" >&2
    cat "$work/said" >&2
    exit 1
  fi
}
ours=$work/ours.pub
unpack "$archive"
expect 0 "verified: " verify --key "$ours"
expect 1 "give the public key of its maker" verify
expect 0 "WARNING: no signature was checked" verify --without-key
expect 1 "is not signed by the key in $work/theirs.pub" verify --key "$work/theirs.pub"
expect 2 "there is no such file" verify --key "$work/none.pub"
expect 2 "--force is not known" verify --force
expect 0 "usage: " --help

tar -tzf "$work/tree/cluster"/sesame-*.tgz | grep -qx sesame/Chart.yaml

# If a file has changed, every command must fail before doing anything.
printf x >>"$work/tree/docs/images.md"
for command in verify host images cluster; do
  expect 1 "changed: docs/images.md" "$command" --key "$ours"
done
unpack "$archive"
rm "$work/tree/packages/sesame-agent_0_all.deb"
expect 1 "missing: packages/sesame-agent_0_all.deb" verify --key "$ours"
unpack "$archive"
echo more >"$work/tree/packages/a further one.deb"
expect 1 "added: packages/a further one.deb" verify --key "$ours"
unpack "$archive"
mv "$work/tree/docs" "$work/docs"
ln -s "$work/docs" "$work/tree/docs"
expect 1 "added: docs" verify --key "$ours"
unpack "$archive"
sed -i '1s/^./x/' "$work/tree/SHA256SUMS"
expect 1 "is not signed by the key" verify --key "$ours"
expect 1 "lines that are no digests" verify --without-key
unpack "$archive"
rm "$work/tree/SHA256SUMS.sig"
expect 1 "not signed: there is no SHA256SUMS.sig" verify --key "$ours"

unpack "$unsigned"
expect 0 "WARNING: no signature was checked" verify
expect 1 "not signed" verify --key "$ours"
openssl pkeyutl -verify -pubin -inkey "$ours" -rawin -in "$archive" -sigfile "$archive.sig" >/dev/null
echo "all archive checks passed"
