#!/bin/sh
# nodes.sh SCENARIO...: runs the named scenarios (default: all) as root, on nodes with kubelets.
set -eu
cd "$(dirname "$0")/.."
tests/tools.sh cargo cc go openssl buildah containerd ctr runc cni nft ip nsenter unshare \
  python3 strip mmdebstrap dpkg-deb envoy
tests/tools/get.sh envoy kube definitions nodes-tools
"${CARGO:-cargo}" build --locked --workspace --bins
images/make.sh --for-tests
target/debug/nodes "$@"
[ $# -gt 0 ] || target/debug/nodes archive serve
