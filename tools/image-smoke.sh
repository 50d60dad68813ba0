#!/usr/bin/env bash
# Builds the Dockerfile for real, runs the image hardened, reranks with it and stops it.
#
# Uses docker where a docker engine answers, otherwise podman, without any image registry: the official base image is
# then replaced by Debian's own Python, unless BASE_IMAGE names one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

IMAGE=localhost/listwright:smoke
NAME=listwright-smoke-$$
PYTHON=${PYTHON:-python3}
TMP=$(mktemp -d)

say() { printf '%s\n' "$*"; }
die() { say "image test: $*" >&2; exit 1; }

# What is missing is installed where that is possible without asking anybody.
need() {
  local tool missing=()
  for tool in "$@"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    die "no docker engine answers and ${missing[*]} is not installed: start docker, or install ${missing[*]}"
  fi
  say "installing ${missing[*]}"
  apt-get update -qq </dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >"$TMP/apt.log" 2>&1 ||
    { cat "$TMP/apt.log" >&2; die "could not install ${missing[*]}"; }
}

choose_engine() {
  PORT=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  BUILD=() # more options for "build"
  if docker info >/dev/null 2>&1; then
    ENGINE=docker
    RUN=(-p "127.0.0.1:$PORT:8000")
    [ -z "${BASE_IMAGE:-}" ] || BUILD+=(--build-arg "BASE_IMAGE=$BASE_IMAGE")
    return
  fi
  ENGINE=podman
  need podman runc
  # Inside another container: runc takes cgroup layouts that crun refuses, and limits may not be raised, only repeated.
  printf '[containers]\ndefault_ulimits=["nofile=%s:%s","nproc=16384:16384"]\n[engine]\nruntime="runc"\n' \
    "$(ulimit -Hn)" "$(ulimit -Hn)" >"$TMP/containers.conf"
  export CONTAINERS_CONF=$TMP/containers.conf DISABLE_HC_SYSTEMD=true
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
  RUN=(--network=host -e "LISTWRIGHT_PORT=$PORT")
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

cleanup() {
  local status=$?
  if [ -n "${ENGINE:-}" ]; then
    [ $status -eq 0 ] || "$ENGINE" logs "$NAME" 2>/dev/null | tail -n 40 >&2 || true
    "$ENGINE" rm -f "$NAME" >/dev/null 2>&1 || true
  fi
  rm -rf "$TMP"
}
trap cleanup EXIT

health() {
  if [ "$ENGINE" = podman ]; then podman healthcheck run "$NAME" >/dev/null; return; fi
  local state
  for _ in $(seq 60); do
    state=$(docker inspect "$NAME" --format '{{.State.Health.Status}}')
    [ "$state" != healthy ] || return 0
    sleep 1
  done
  return 1
}

choose_engine
say "building $IMAGE with $ENGINE"
"$ENGINE" build -q "${BUILD[@]}" -t "$IMAGE" . >"$TMP/build.log" 2>&1 || { cat "$TMP/build.log" >&2; die "the build failed"; }

"$ENGINE" run -d --name "$NAME" --read-only --tmpfs /tmp --cap-drop=ALL --security-opt=no-new-privileges --memory=1g \
  "${RUN[@]}" "$IMAGE" >/dev/null
"$PYTHON" tools/image_query.py models/demo/1 "http://127.0.0.1:$PORT"

health || die "HEALTHCHECK does not pass"
say "HEALTHCHECK healthy"

uid=$("$ENGINE" exec "$NAME" id -u)
[ "$uid" -ne 0 ] || die "runs as root"
say "uid $uid"

found=$("$ENGINE" exec "$NAME" python -c '
from importlib.util import find_spec
print(*filter(find_spec, ["listwright.training", "torch", "onnx", "onnxscript", "optuna", "polars", "sklearn", "pandas", "pip"]))')
[ -z "$found" ] || die "the image holds what serving does not need: $found"
say "no training library inside"

"$ENGINE" stop -t 15 "$NAME" >/dev/null
code=$("$ENGINE" inspect "$NAME" --format '{{.State.ExitCode}}')
[ "$code" -eq 0 ] || die "stopped with exit code $code"
say "stopped with exit code 0"

bytes=$("$ENGINE" image inspect "$IMAGE" --format '{{.Size}}')
say "image size $((bytes / 1000000)) MB"
