#!/bin/sh
# Builds Helm and kustomize, for tests only.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
version=$(go_pin helm/go.mod helm.sh/helm/v4)
need "${HELM_TOOLS:-$TOOLS/helm-$version}" \
  "Helm $version and kustomize (Go modules: four minutes and 1.2 GB of build cache)" helm kustomize
go_build "$tests/helm" "$new/out/" -ldflags '-s -w' helm.sh/helm/v4/cmd/helm sigs.k8s.io/kustomize/kustomize/v5
install_all
