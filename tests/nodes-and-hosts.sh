#!/bin/sh
# Tests images, the archive for sites without a network, nodes (some scenarios) and hosts, if this
# machine has the tools and can run machines. nodes-and-hosts.sh --tools prints the names of the
# tools.
set -eu
cd "$(dirname "$0")/.."
tools='buildah cni containerd ctr curl dpkg-deb dpkg-shlibdeps ip lintian mmdebstrap nft nsenter openssl python3 runc setpriv
  strip systemd-nspawn unshare'
# Run each way to deploy Sesame once: without the Gateway API, as a managed fleet, and with your own
# DaemonSet. Then run their rollouts. The hosts of test-hosts join a cluster, or have no network.
# All other scenarios would double the time.
nodes='without-gateway-api managed-fleet own-daemonset columns agent envoy'
if [ "${1:-}" = --tools ]; then
  # shellcheck disable=SC2086 # One line.
  echo $tools
  exit
fi
# shellcheck disable=SC2086 # One argument each.
if tests/tools.sh $tools && target/debug/hosts --can-run; then
  make images-check airgap-check
  make test-nodes NODES="$nodes"
  make test-hosts
else
  echo 'NOT TESTED HERE, because of the above: images, the archive for sites without a network, nodes, hosts' >&2
fi
