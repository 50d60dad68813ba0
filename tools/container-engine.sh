# shellcheck shell=bash
# What the tests with containers share; each sources it, and names itself in TEST before that.
#
# Uses docker where a docker engine answers, otherwise podman, without any image registry: the official base image is
# then replaced by Debian's own Python, unless BASE_IMAGE names one.

IMAGE=localhost/listwright:smoke
PYTHON=${PYTHON:-python3}
TMP=$(mktemp -d)

say() { printf '%s\n' "$*"; }
die() { say "$TEST: $*" >&2; exit 1; }

free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# What is missing is installed where that is possible without asking anybody: packages of Debian.
need() {
  local package missing=()
  for package in "$@"; do present "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    die "${missing[*]} is not installed: ${REMEDY:-install ${missing[*]}}"
  fi
  say "installing ${missing[*]}"
  apt-get update -qq </dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >"$TMP/apt.log" 2>&1 ||
    { cat "$TMP/apt.log" >&2; die "could not install ${missing[*]}"; }
}

# A package is there if its command is; this one has none on the PATH.
present() {
  if [ "$1" = containernetworking-plugins ]; then [ -x /usr/lib/cni/bridge ] || [ -x /usr/libexec/cni/bridge ]; return; fi
  command -v "$1" >/dev/null
}

use_podman() {
  ENGINE=podman
  need podman runc
  # Inside another container: runc takes cgroup layouts that crun refuses, and limits may not be raised, only repeated.
  printf '[containers]\ndefault_ulimits=["nofile=%s:%s","nproc=16384:16384"]\n[engine]\nruntime="runc"\n' \
    "$(ulimit -Hn)" "$(ulimit -Hn)" >"$TMP/containers.conf"
  export CONTAINERS_CONF=$TMP/containers.conf DISABLE_HC_SYSTEMD=true
}

# More options for "build", in BUILD.
choose_base() {
  BUILD=()
  if [ "$ENGINE" = docker ]; then
    [ -z "${BASE_IMAGE:-}" ] || BUILD+=(--build-arg "BASE_IMAGE=$BASE_IMAGE")
    return
  fi
  if [ -z "${BASE_IMAGE:-}" ]; then
    BASE_IMAGE=localhost/debian-python-dev:3.11
    make_base
  fi
  BUILD+=(--pull=missing --network=host --format docker --build-arg "BASE_IMAGE=$BASE_IMAGE")
  # Certificates and pip's settings are the host's, for the build steps only: no layer keeps them.
  local file
  for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ ! -f "$file" ] || BUILD+=(-v "$file:$file:ro")
  done
}

# A stand-in for python:3.11-slim: Debian's own Python 3.11, with the commands where the official image has them.
make_base() {
  ! podman image exists "$BASE_IMAGE" || return 0
  need mmdebstrap
  say "making $BASE_IMAGE"
  # shellcheck disable=SC2016 # $1 is mmdebstrap's, not this shell's
  mmdebstrap -q --variant=minbase --include=ca-certificates,python3,python3-dev,python3-venv,python3-pip \
    --customize-hook='rm -rf "$1"/usr/lib/python3.11/EXTERNALLY-MANAGED "$1"/var/lib/apt/lists/*' \
    --customize-hook='ln -s /usr/bin/python3 "$1"/usr/local/bin/python; ln -s /usr/bin/pip3 "$1"/usr/local/bin/pip' \
    bookworm - >"$TMP/base.tar"
  podman import -q -c 'CMD python3' -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin' \
    "$TMP/base.tar" "$BASE_IMAGE" >/dev/null
  rm "$TMP/base.tar"
}

build_image() {
  choose_base
  say "building $IMAGE with $ENGINE"
  "$ENGINE" build -q "${BUILD[@]}" -t "$IMAGE" . >"$TMP/build.log" 2>&1 || { cat "$TMP/build.log" >&2; die "the build failed"; }
}
