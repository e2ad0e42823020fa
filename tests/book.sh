#!/bin/sh
# Builds the documentation as a website, in target/book.
set -eu
cd "$(dirname "$0")/.."
tests/tools.sh cargo cc python3
tests/tools/get.sh mdbook
rm -rf target/book
"$MDBOOK" build docs
rm target/book/book.toml
tests/book.py target/book
