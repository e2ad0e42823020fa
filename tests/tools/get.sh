#!/bin/sh
# get.sh TOOL...: fetches or builds tools, unless they already exist. get.sh --missing TOOL...: only
# prints the missing tools, one per line, with the cost of getting each.
set -eu
here=$(dirname "$0")
if [ "$1" = --missing ]; then
  shift
  export MISSING=1
fi
for tool in "$@"; do
  case $tool in
    envoy) "$here/envoy.sh" current ;;
    older-envoy) "$here/envoy.sh" older ;;
    envoy-amd64 | envoy-arm64) "$here/envoy.sh" "${tool#envoy-}" ;;
    cargo-deny | nextest) "$here/cargo-tool.sh" "$tool" ;;
    grpc-web-client | oidc-provider) "$here/npm.sh" "$tool" ;;
    *) "$here/$tool.sh" ;;
  esac
done
