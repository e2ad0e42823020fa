#!/bin/sh
# Fetches curl's library with HTTP/3 from PyPI into .tools/curl-http3-VERSION.
set -eu
# shellcheck source=tests/tools/common.sh
. "$(dirname "$0")/common.sh"
need "$TOOLS/curl-http3-$CURL_HTTP3_VERSION" "curl with HTTP/3 $CURL_HTTP3_VERSION (14 MB from PyPI)" libcurl.so
wheel "curl_cffi==$CURL_HTTP3_VERSION" "$CURL_HTTP3_SHA256_X86_64" "$CURL_HTTP3_SHA256_AARCH64"
mv "$new/wheel/curl_cffi/_wrapper.abi3.so" "$new/out/libcurl.so"
install_all
