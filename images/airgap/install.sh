#!/bin/sh
# Installs Sesame from this archive without a network. Always verifies the complete archive first.
set -eu
export LC_ALL=C
umask 022

usage() {
  cat <<'TEXT'
usage: install.sh COMMAND [--key FILE | --without-key] [OPTION...]

  verify     Tell whether this is all that was packed, unchanged, and signed by the key.
  host       Make this machine a gateway host: install the agent and Envoy (as root).
  images     Import the images into what runs containers here, or copy them to a registry.
  cluster    Apply the definitions, the controller and the agents to the cluster of kubectl.

  --key FILE        Public ed25519 key (PEM) of whoever made the archive, from somewhere else than this archive.
  --without-key     Go on with a signed archive although there is no key: protects against damage, not against people.
  images:
  --with TOOL       ctr, podman, docker or skopeo; the first that is there by default.
  --to REGISTRY     With skopeo: where to copy the images, as in registry.example.com/sesame.
  cluster:
  --registry REGISTRY  Where the nodes find the images; by default they have them.
  --channel NAME    standard or experimental definitions of the Gateway API (default: standard).
  --no-agents       Only the definitions and the controller.

Exit status: 0 done, 1 the archive is not as it should be, 2 wrong call, 3 the work failed.
TEXT
}

say() {
  printf '%s\n' "$*" >&2
}

# Exits with a status and a reason: die STATUS REASON
die() {
  say "error: $2"
  exit "$1"
}

has() {
  command -v "$1" >/dev/null 2>&1
}

# Verifies the signature of the digest list, then all files against the list. Exits with status 1
# after reporting every reason.
verify() {
  bad=0
  [ -f SHA256SUMS ] || die 1 "missing: SHA256SUMS"
  if [ -n "$key" ]; then
    has openssl || die 3 "openssl is needed to check the signature"
    [ -f SHA256SUMS.sig ] || die 1 "not signed: there is no SHA256SUMS.sig, so the archive may be anybody's"
    openssl pkeyutl -verify -pubin -inkey "$key" -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig >/dev/null 2>&1 ||
      die 1 "SHA256SUMS is not signed by the key in $key"
  elif [ -f SHA256SUMS.sig ] && [ "$without_key" = no ]; then
    die 1 "the archive is signed: give the public key of its maker with --key FILE (or --without-key)"
  else
    say "WARNING: no signature was checked, so the archive may be anybody's"
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  sed -n 's/^[0-9a-f]\{64\}  //p' SHA256SUMS | sort >"$work/listed"
  [ "$(wc -l <"$work/listed")" -eq "$(wc -l <SHA256SUMS)" ] || die 1 "SHA256SUMS has lines that are no digests"
  find . ! -type d ! -path ./SHA256SUMS ! -path ./SHA256SUMS.sig | sed 's|^\./||' | sort >"$work/found"
  while read -r file; do
    if [ -L "$file" ] || { [ -e "$file" ] && [ ! -f "$file" ]; }; then
      bad=1
      say "not a file: $file"
    elif [ ! -e "$file" ]; then
      bad=1
      say "missing: $file"
    fi
  done <"$work/listed"
  comm -13 "$work/listed" "$work/found" >"$work/added"
  if [ -s "$work/added" ]; then
    bad=1
    sed 's/^/added: /' "$work/added" >&2
  fi
  if [ "$bad" = 0 ] && ! sha256sum -c SHA256SUMS >"$work/checked" 2>/dev/null; then
    bad=1
    sed -n 's/^\(.*\): FAILED.*/changed: \1/p' "$work/checked" >&2
  fi
  [ "$bad" = 0 ] || die 1 "this is not the archive that was packed; nothing was done"
  say "verified: $(wc -l <"$work/listed") files"
}

install_host() {
  [ "$(id -u)" = 0 ] || die 2 "install.sh host needs root"
  if has dpkg; then
    dpkg -i packages/*.deb >&2 || die 3 "dpkg -i has failed"
  else
    for file in packages/*.tar.gz; do
      # Existing directories keep their owners and modes.
      tar -xzf "$file" -C / --no-same-owner --no-overwrite-dir || die 3 "$file cannot be unpacked"
    done
    systemd-sysusers sesame.conf && systemd-tmpfiles --create sesame.conf || die 3 "the user or its directories cannot be made"
    if [ -d /run/systemd/system ]; then
      systemctl daemon-reload
      /usr/lib/systemd/systemd-sysctl /usr/lib/sysctl.d/50-sesame.conf || true
      ! systemctl is-active --quiet sesame-envoy.service || systemctl reload sesame-envoy.service
      systemctl try-restart sesame-agent.service
    fi
  fi
  sesame-agent doctor || say "the doctor has findings; above is how to fix them"
  cat <<'TEXT'

Installed; nothing was started. What is next:
  manifests    put them into /etc/sesame/manifests, then: systemctl enable --now sesame.target
  bundles      docs/air-gapped-sites.md: whom to trust, and where bundles are put
  a cluster    docs/joining.md: sesame-agent join, with a token of the controller
TEXT
}

# Prints the first installed tool that can import images.
find_tool() {
  for candidate in ctr podman docker skopeo; do
    if has "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  die 3 "there is neither ctr, podman, docker nor skopeo"
}

install_images() {
  tool=${with:-$(find_tool)}
  [ "$tool" != skopeo ] || [ -n "$to" ] || die 2 "skopeo copies to a registry: --to registry.example.com/sesame"
  [ -z "$to" ] || [ "$tool" = skopeo ] || die 2 "--to is for skopeo: --with skopeo"
  for file in images/*.oci.tar; do
    name=${file#images/} tag=${file#*_}
    name=${name%%_*} tag=${tag%%_*}
    case $tool in
      ctr) ctr --namespace k8s.io images import "$file" ;;
      podman | docker) "$tool" load --input "$file" ;;
      skopeo) skopeo copy --all "oci-archive:$file" "docker://$to/$name:$tag" ;;
      *) die 2 "--with $tool: ctr, podman, docker or skopeo" ;;
    esac >&2 || die 3 "$tool did not take $file"
  done
}

install_cluster() {
  has kubectl || die 3 "kubectl is needed, with a kubeconfig for the cluster"
  case $channel in
    standard | experimental) ;;
    *) die 2 "--channel $channel: standard or experimental" ;;
  esac
  cp -R cluster "$work/cluster"
  if [ -n "$registry" ]; then
    sed "s|newName: localhost/|newName: $registry/|" cluster/sesame/kustomization.yaml >"$work/cluster/sesame/kustomization.yaml"
    sed "s|newName: localhost/|newName: $registry/|" cluster/sesame/agent/kustomization.yaml >"$work/cluster/sesame/agent/kustomization.yaml"
  fi
  if kubectl get customresourcedefinition gateways.gateway.networking.k8s.io >/dev/null 2>&1; then
    say "the cluster has the definitions of the Gateway API; they stay as they are"
  else
    kubectl apply --server-side -f "$work/cluster/gateway-api/$channel" || die 3 "the definitions were not applied"
  fi
  kubectl apply -k "$work/cluster/sesame" || die 3 "the controller was not applied"
  [ "$agents" = yes ] || return 0
  kubectl apply -k "$work/cluster/sesame/agent" || die 3 "the agents were not applied"
}

command=${1:-}
[ $# = 0 ] || shift
key='' without_key=no with='' to='' registry='' channel=standard agents=yes
while [ $# -gt 0 ]; do
  option=$1
  shift
  case $option in
    --without-key) without_key=yes ;;
    --no-agents) agents=no ;;
    --key | --with | --to | --registry | --channel)
      [ $# -gt 0 ] || die 2 "$option needs a value"
      case $option in
        --key) key=$1 ;;
        --with) with=$1 ;;
        --to) to=$1 ;;
        --registry) registry=$1 ;;
        --channel) channel=$1 ;;
      esac
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die 2 "$option is not known; see install.sh --help" ;;
  esac
done
if [ -n "$key" ]; then
  [ -f "$key" ] || die 2 "--key $key: there is no such file"
  key=$(cd "$(dirname "$key")" && pwd)/$(basename "$key")
fi
cd "$(dirname "$0")"
case $command in
  verify) verify ;;
  host)
    verify
    install_host
    ;;
  images)
    verify
    install_images
    ;;
  cluster)
    verify
    install_cluster
    ;;
  -h | --help | help) usage ;;
  *)
    usage >&2
    exit 2
    ;;
esac
