#!/usr/bin/env bash
# Packs a bundle as an image, serves it from an image volume, and runs two pods of the rendered chart behind haproxy:
# a rolling restart under load, and killed pods. Takes the image that tools/image-smoke.sh built, if podman has it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TEST="Kubernetes test"
. tools/container-engine.sh
BUNDLE=localhost/listwright-bundle
NAME=listwright-volume-$$

cleanup() {
  local status=$?
  if [ -n "${ENGINE:-}" ]; then
    [ $status -eq 0 ] || podman logs "$NAME" 2>/dev/null | tail -n 40 >&2 || true
    podman rm -f -t 0 "$NAME" >/dev/null 2>&1 || true
  fi
  rm -rf "$TMP"
}
trap cleanup EXIT

pack() { podman build -q --format docker -f deploy/bundle.Dockerfile "$@" models/demo/1 >/dev/null; }

need catatonit containernetworking-plugins haproxy
use_podman
podman image exists "$IMAGE" || build_image

pack -t "$BUNDLE:scratch"
pack --pull=never --build-arg "BASE_IMAGE=$IMAGE" -t "$BUNDLE:with-cp"
say "bundle image $(($(podman image inspect "$BUNDLE:scratch" --format '{{.Size}}') / 1000)) kB"

PORT=$(free_port)
podman run -d --name "$NAME" --network=host --read-only --tmpfs /tmp --cap-drop=ALL \
  --mount "type=image,source=$BUNDLE:scratch,destination=/volume" \
  -e LISTWRIGHT_BUNDLE=/volume/bundle -e "LISTWRIGHT_PORT=$PORT" "$IMAGE" >/dev/null
"$PYTHON" tools/image_query.py models/demo/1 "http://127.0.0.1:$PORT"
podman rm -f -t 0 "$NAME" >/dev/null
say "served from an image volume"

PYTHONPATH=. "$PYTHON" tools/kube_test.py
