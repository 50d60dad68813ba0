#!/usr/bin/env bash
# Writes build/sbom.cdx.json, the CycloneDX SBOM of the image that tools/image-smoke.sh builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TEST="SBOM"
. tools/container-engine.sh

cleanup() {
  [ -z "${CONTAINER:-}" ] || "$ENGINE" rm -f "$CONTAINER" >/dev/null 2>&1 || true
  rm -rf "$TMP"
}
trap cleanup EXIT

if docker info >/dev/null 2>&1; then ENGINE=docker; else use_podman; fi
"$ENGINE" image inspect "$IMAGE" >/dev/null 2>&1 || build_image

CONTAINER=$("$ENGINE" create "$IMAGE")
"$ENGINE" cp "$CONTAINER:/opt/venv" "$TMP/venv"
"$ENGINE" cp "$CONTAINER:/var/lib/dpkg/status" "$TMP/status"
digest=$("$ENGINE" image inspect "$IMAGE" --format '{{.Id}}')
"$PYTHON" tools/sbom.py --venv "$TMP/venv" --status "$TMP/status" --image "${IMAGE%%:*}" --digest "sha256:${digest#sha256:}" \
  --out build/sbom.cdx.json
