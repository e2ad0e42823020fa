#!/bin/sh
# hosts.sh SCENARIO...: runs the named scenarios (default: all) on gateway hosts with a real
# systemd, as root.
set -eu
cd "$(dirname "$0")/.."
# openssl signs the bundles. cc compiles the library that shifts an agent's clock.
tests/tools.sh cargo cc go mmdebstrap systemd-nspawn nsenter unshare ip openssl dpkg-deb dpkg-shlibdeps strip lintian envoy
tests/tools/get.sh envoy curl-http3 kube definitions
"${CARGO:-cargo}" build --locked --workspace --bins
exec target/debug/hosts "$@"
