#!/bin/sh
# Builds the node images of lockquake, one for each folder beside this script. It does nothing for an image that exists
# and was made from the same Dockerfile, so it may be called before every run. The program carries it, with the folders:
#
#   lockquake images            that of the program itself, and all images but those that are built on demand
#   lockquake images redis      only these
#   lockquake images python     one that is built on demand, as nodejs and java are (whose sources the program adds): for clients in another language
#
# LOCKQUAKE_BASE    base image (default debian:bookworm-slim)
# LOCKQUAKE_SUITE   Debian suite of a base image made by debootstrap (default bookworm)
# LOCKQUAKE_MIRROR  Debian mirror of debootstrap (default http://deb.debian.org/debian)
# DOCKER            command line client of the engine (default docker)
#
# It ends with 3 where no engine answers.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
base=${LOCKQUAKE_BASE:-debian:bookworm-slim}
suite=${LOCKQUAKE_SUITE:-bookworm}
mirror=${LOCKQUAKE_MIRROR:-http://deb.debian.org/debian}
docker=${DOCKER:-docker}

say() { echo "images: $*" >&2; }
die() { say "$*"; exit 3; }

have() { "$docker" image inspect "$1" >/dev/null 2>&1; }

# The proxy and certificate settings of this machine reach apt-get in the build; none are kept in the image.
build_args() {
  for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    eval "set_to=\${$v:-}"
    [ -z "$set_to" ] || printf ' --build-arg %s' "$v"
  done
}

# from_packages makes the base image out of Debian's packages, where it could not be pulled; $why says what kept it.
from_packages() {
  [ "$(id -u)" = 0 ] || die "$base: $why; making it with debootstrap needs root: sudo lockquake images"
  if ! command -v debootstrap >/dev/null 2>&1; then
    command -v apt-get >/dev/null 2>&1 || die "$base: $why; and there is no debootstrap to make it: install debootstrap"
    say "installing debootstrap"
    { apt-get install -y --no-install-recommends debootstrap || { apt-get update && apt-get install -y --no-install-recommends debootstrap; }; } >&2
  fi
  root=$(mktemp -d "${TMPDIR:-/tmp}/lockquake-base.XXXXXX")
  trap 'rm -rf "$root"' EXIT
  say "making $base with debootstrap, some 30 s"
  debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; die "debootstrap ended with an error, see $root.log"; }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -c . | "$docker" import - "$base" >/dev/null
  rm -rf "$root" "$root.log"
  trap - EXIT
}

ensure_base() {
  have "$base" && return
  say "pulling $base, for at most 30 s"
  code=0
  answer=$(timeout 30 "$docker" pull -q "$base" 2>&1) || code=$?
  case $code in
    0) return ;;
    124) why="it did not come within 30 s (on a slow network: $docker pull $base, and then this again)" ;;
    *) why="it could not be pulled ($(echo "$answer" | tail -n 1))" ;;
  esac
  case $base in
    debian:*) say "$base: $why"; from_packages ;;
    *) die "$base: $why" ;;
  esac
}

# build DIR makes lockquake-DIR:latest; the label holds what it was made from.
build() {
  image=lockquake-$1:latest
  made_from=$( (echo "$base"; cat "$here/$1"/*) | sha256sum | cut -c1-16)
  [ "$("$docker" image inspect -f '{{index .Config.Labels "org.lockquake.made-from"}}' "$image" 2>/dev/null)" = "$made_from" ] && return
  ensure_base
  say "building $image"
  log=$(mktemp "${TMPDIR:-/tmp}/lockquake-build.XXXXXX")
  # shellcheck disable=SC2046 # each argument is a word of its own
  if ! "$docker" build --network host $(build_args) --build-arg "BASE=$base" --label "org.lockquake.made-from=$made_from" \
      -t "$image" "$here/$1" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    rm -f "$log"
    say "building $image ended with an error"
    exit 1
  fi
  rm -f "$log"
  "$docker" image prune -f --filter label=org.lockquake.stage=true >/dev/null # what another stage needed alone
}

command -v "$docker" >/dev/null 2>&1 || die "there is no $docker command: install an engine, or run with --provider local"
timeout 10 "$docker" version >/dev/null 2>&1 || die "no engine answers '$docker version': start it, or run with --provider local"

if [ $# -eq 0 ]; then
  for f in "$here"/*/Dockerfile; do
    grep -q '^LABEL org.lockquake.on-demand=true' "$f" || set -- "$@" "$(basename "$(dirname "$f")")"
  done
fi
for name in "$@"; do
  [ -f "$here/$name/Dockerfile" ] || { say "there is no image $name; there are: $(cd "$here" && echo */ | tr -d /)"; exit 2; }
  build "$name"
done
