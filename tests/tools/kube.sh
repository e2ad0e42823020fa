#!/bin/sh
# Builds the API server and etcd for tests, unless $KUBEBUILDER_ASSETS is a directory that contains
# them.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
given=${KUBEBUILDER_ASSETS:-}
for program in etcd kube-apiserver; do
  [ -z "$given" ] || [ -e "$given/$program" ] || fail "KUBEBUILDER_ASSETS: there is no $given/$program"
done
need "${given:-$TOOLS/kube-$kube_version}" \
  "etcd and kube-apiserver $kube_version (Go modules: five minutes and 2.2 GB of build cache)" etcd kube-apiserver
go_build "$tests/cluster" "$new/out/etcd" -ldflags '-s -w' go.etcd.io/etcd/server/v3
go_build "$tests/cluster" "$new/out/kube-apiserver" -ldflags "$kube_flags" k8s.io/kubernetes/cmd/kube-apiserver
install_all
