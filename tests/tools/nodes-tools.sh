#!/bin/sh
# Builds the Kubernetes node programs, and the programs in the test images.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
programs='kubelet kube-controller-manager kube-scheduler kubectl kube-proxy'
# shellcheck disable=SC2086 # Word splitting is intended.
need "${NODES_TOOLS:-$TOOLS/nodes-$kube_version}" "the programs of nodes $kube_version (Go modules)" $programs pause echo-basic

# Build all programs with one command, because they share most of their packages.
packages=
for program in $programs; do
  packages="$packages k8s.io/kubernetes/cmd/$program"
done
# shellcheck disable=SC2086 # Word splitting is intended.
go_build "$tests/cluster" "$new/out/" -ldflags "$kube_flags" $packages

# Build Kubernetes' pause program from the pinned sources.
sources=$(cd "$tests/cluster" && "$GO" list -m -f '{{.Dir}}' k8s.io/kubernetes)
"${CC:-cc}" -static -Os -s -DVERSION="$kube_version" -o "$new/out/pause" "$sources/build/pause/linux/pause.c"

GOTOOLCHAIN=$(sed -n 's|^toolchain ||p' "$tests/conformance/go.mod")
export GOTOOLCHAIN
go_build "$tests/conformance" "$new/out/echo-basic" -ldflags '-s -w' sigs.k8s.io/gateway-api-conformance-images/echo-basic
install_all
