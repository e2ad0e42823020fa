#!/bin/sh
# npm.sh NAME: gets the packages in tests/NAME/package.json from npm, for tests only. The lock file
# contains their checksums.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
source=$tests/$1
case $1 in
  oidc-provider) package=oidc-provider size='3 MB' ;;
  grpc-web-client) package=@connectrpc/connect-web size='7 MB' ;;
  *) fail "unknown packages: $1" ;;
esac
version=$(sed -n "s|.*\"$package\": \"\(.*\)\".*|\1|p" "$source/package.json")
need "$TOOLS/$1-$version" "$package $version ($size from npm)" "node_modules/$package/package.json"
cp "$source/package.json" "$source/package-lock.json" "$new/out/"
# The packages need no scripts, which could run any code.
(cd "$new/out" && npm ci --ignore-scripts --no-audit --no-fund --silent)
install_all
