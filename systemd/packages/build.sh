#!/bin/sh
# Builds a gateway host's packages: build.sh AGENT ENVOY DIRECTORY. Requires dpkg-dev and binutils.
#
# The packages are reproducible: owners, modes and order are fixed, and timestamps are
# $SOURCE_DATE_EPOCH or the last commit's time. dpkg-deb is part of every Debian system, so no
# packaging tool has to be pinned.
#
# $PACKAGE_REVISION is appended to both versions; $PACKAGE_LEVEL is the compression level, 0 to 9.
set -eu
export LC_ALL=C TZ=UTC
umask 022
agent=$1 envoy=$2 out=$3
here=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
arch=$(dpkg --print-architecture)
envoy_version=$("$envoy" --version | sed -n 's|.*version: [^/]*/\([^/]*\)/.*|\1|p')
revision=${PACKAGE_REVISION:+"+$PACKAGE_REVISION"}
level=${PACKAGE_LEVEL:-6}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# file MODE FROM TO: copies a file into the tree.
file() {
  install -D -m "$1" "$2" "$tree/$3"
}

# pack NAME VERSION SOURCE HOLDER: completes a package's tree and packs it.
pack() {
  doc=$tree/usr/share/doc/$1
  mkdir -p "$doc" "$tree/DEBIAN"
  sed -e "s|@NAME@|$1|; s|@SOURCE@|$3|; s|@HOLDER@|$4|" "$here/packages/copyright" >"$doc/copyright"
  printf '%s (%s) unstable; urgency=medium\n\n  * Release %s.\n\n -- Sesame authors <maintainers@projectsesame.io>  %s\n' \
    "$1" "$2" "$2" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
  file 644 "$here/packages/$1/lintian-overrides" "usr/share/lintian/overrides/$1"
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

  # Also pack the tree as a tarball, for systems without dpkg.
  tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --exclude=./DEBIAN \
    -c . | gzip -n -"$((level ? level : 1))" >"$out/$1_$2_$arch.tar.gz"

  size=$(du -k -s --apparent-size "$tree" | cut -f 1)
  sed -e "s|@VERSION@|$2|; s|@ARCH@|$arch|; s|@SIZE@|$size|; s|@DEPENDS@|$(depends)|" \
    "$here/packages/$1/control" >"$tree/DEBIAN/control"
  for script in conffiles postinst prerm postrm; do
    [ -e "$here/packages/$1/$script" ] || continue
    mode=755
    [ $script != conffiles ] || mode=644
    file $mode "$here/packages/$1/$script" "DEBIAN/$script"
  done
  (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | sort | xargs md5sum) >"$tree/DEBIAN/md5sums"
  dpkg-deb --root-owner-group -Zxz -z"$level" --build "$tree" "$out/$1_$2_$arch.deb" >/dev/null
  echo "$out/$1_$2_$arch.deb"
}

# Prints the value for the Depends field: the packages whose libraries the program uses.
depends() {
  mkdir -p "$work/debian"
  : >"$work/debian/control"
  (cd "$work" && dpkg-shlibdeps --ignore-missing-info -O "$tree/$program" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

tree=$work/sesame-agent program=usr/bin/sesame-agent
file 755 "$agent" $program
strip --strip-unneeded --remove-section=.comment "$tree/$program"
for unit in "$here"/units/*; do
  file 644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"
done
file 644 "$here/sysctl.d/50-sesame.conf" usr/lib/sysctl.d/50-sesame.conf
file 644 "$here/sysusers.d/sesame.conf" usr/lib/sysusers.d/sesame.conf
file 644 "$here/tmpfiles.d/sesame.conf" usr/lib/tmpfiles.d/sesame.conf
file 644 "$here/needrestart/sesame.conf" etc/needrestart/conf.d/sesame.conf
file 644 "$here/default/sesame-agent" etc/default/sesame-agent
file 644 "$here/settings/agent.yaml" usr/share/sesame-agent/agent.yaml
mkdir "$work/man"
if "$agent" man --dir "$work/man" 2>/dev/null; then
  for page in "$work"/man/*.1; do
    mkdir -p "$tree/usr/share/man/man1"
    gzip -9n <"$page" >"$tree/usr/share/man/man1/$(basename "$page").gz"
  done
fi
complete() {
  if "$agent" completion "$1" >"$work/completion" 2>/dev/null; then
    file 644 "$work/completion" "$2"
  fi
}
complete bash usr/share/bash-completion/completions/sesame-agent
complete zsh usr/share/zsh/vendor-completions/_sesame-agent
complete fish usr/share/fish/vendor_completions.d/sesame-agent.fish
pack sesame-agent "$version$revision" https://projectsesame.io "The Sesame authors"

tree=$work/sesame-envoy program=usr/lib/sesame/envoy
file 755 "$envoy" $program
pack sesame-envoy "$envoy_version$revision" https://github.com/envoyproxy/envoy "The Envoy project authors"
