#!/usr/bin/env bash
# Builds the Dockerfile for real, runs the image hardened, reranks with it and stops it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TEST="image test"
. tools/container-engine.sh
NAME=listwright-smoke-$$

choose_engine() {
  PORT=$(free_port)
  if docker info >/dev/null 2>&1; then
    ENGINE=docker
    RUN=(-p "127.0.0.1:$PORT:8000")
    return
  fi
  REMEDY="start a docker engine, for none answers, or install podman and runc" use_podman
  RUN=(--network=host -e "LISTWRIGHT_PORT=$PORT")
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
build_image

# a user that the image does not know, as OpenShift gives each namespace one, and group 0
"$ENGINE" run -d --name "$NAME" --user 54321:0 --read-only --tmpfs /tmp --cap-drop=ALL --security-opt=no-new-privileges --memory=1g \
  "${RUN[@]}" "$IMAGE" >/dev/null
"$PYTHON" tools/image_query.py models/demo/1 "http://127.0.0.1:$PORT"

health || die "HEALTHCHECK does not pass"
say "HEALTHCHECK healthy"

user=$("$ENGINE" image inspect "$IMAGE" --format '{{.Config.User}}')
[ "$user" = 10001:10001 ] || die "its own user is $user"
say "runs as $("$ENGINE" exec "$NAME" id -u), its own user is $user"

found=$("$ENGINE" exec "$NAME" python -c '
from importlib.util import find_spec
print(*filter(find_spec, ["listwright.training", "torch", "onnx", "onnxscript", "optuna", "polars", "sklearn", "pandas", "pip"]))')
[ -z "$found" ] || die "the image holds what serving does not need: $found"
say "no training library inside"

files=$("$ENGINE" exec "$NAME" python -c '
from listwright.service.ui.routes import read_files
found = read_files()
print(len(found) if {"index.html", "main.js", "vendor/preact.js"} <= found.keys() else 0)')
[ "$files" -gt 0 ] || die "the image lacks files of the page"
say "the page has $files files"

"$ENGINE" stop -t 15 "$NAME" >/dev/null
code=$("$ENGINE" inspect "$NAME" --format '{{.State.ExitCode}}')
[ "$code" -eq 0 ] || die "stopped with exit code $code"
say "stopped with exit code 0"

bytes=$("$ENGINE" image inspect "$IMAGE" --format '{{.Size}}')
say "image size $((bytes / 1000000)) MB"
