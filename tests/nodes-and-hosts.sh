#!/bin/sh
# Tests the images, the archive for air-gapped sites, some scenarios on nodes, and all scenarios on
# hosts. Skips these tests if this machine lacks the tools or cannot run nested machines.
# nodes-and-hosts.sh --tools prints the tools' names.
set -eu
cd "$(dirname "$0")/.."
tools='buildah cni containerd ctr curl dpkg-deb dpkg-shlibdeps ip lintian mmdebstrap nft nsenter openssl python3 runc setpriv
  strip systemd-nspawn unshare'
# Deploy Sesame in each of four ways: without the Gateway API, only for Ingresses, as a managed
# fleet, and as a custom DaemonSet. Then roll out new images. Skip all other scenarios: they would double the time, and
# test-hosts already covers hosts that join a cluster or have no network.
nodes='without-gateway-api ingress-only managed-fleet own-daemonset columns agent envoy'
if [ "${1:-}" = --tools ]; then
  # shellcheck disable=SC2086 # Word splitting joins the lines.
  echo $tools
  exit
fi
# shellcheck disable=SC2086 # Word splitting is intended.
if tests/tools.sh $tools && target/debug/hosts --can-run; then
  make images-check airgap-check
  make test-nodes NODES="$nodes"
  make test-hosts
else
  echo 'NOT TESTED HERE, for the reasons above: images, the archive for air-gapped sites, nodes, hosts' >&2
fi
