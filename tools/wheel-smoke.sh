#!/usr/bin/env bash
# Installs the wheels of dist/ into an empty environment outside the checkout, fits the demo there, serves it, asks it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ROOT=$PWD
TMP=$(mktemp -d)
PORT=$(.venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}

die() { printf 'wheel test: %s\n' "$*" >&2; exit 1; }

cleanup() {
  [ -z "${SERVICE:-}" ] || kill "$SERVICE" 2>/dev/null || true
  rm -rf "$TMP"
}
trap cleanup EXIT

install() {
  "$ROOT/.venv/bin/uv" pip install --quiet --python "$TMP/env/bin/python" -c "$ROOT/constraints.txt" "$@"
}

"$ROOT/.venv/bin/uv" venv --quiet --python "$ROOT/.venv/bin/python" "$TMP/env"
install dist/listwright-*.whl dist/listwright_client-*.whl
cd "$TMP"
PATH=$TMP/env/bin:/usr/bin:/bin

said=$(listwright fit demo 2>&1) && die "fitted without the training extra"
case $said in
  *"listwright[training]"*) echo "without the training extra: $said" ;;
  *) die "does not say what to install: $said" ;;
esac

(cd "$ROOT" && install "$(echo dist/listwright-*.whl)[training]")
said=$(listwright experiment table2 2>&1) && die "ran a suite without the laboratory"
case $said in
  *listwright-lab*) echo "without the laboratory: $said" ;;
  *) die "does not say what to install: $said" ;;
esac
(cd "$ROOT" && install dist/listwright_lab-*.whl)
listwright experiment --help >/dev/null || die "the laboratory has no suites"
listwright fit demo --quick --out models/demo/1 >fit.log 2>&1 || { cat fit.log >&2; die "listwright fit demo failed"; }
listwright verify models/demo/1
LISTWRIGHT_UI=true LISTWRIGHT_PORT=$PORT listwright serve models/demo/1 >serve.log 2>&1 &
SERVICE=$!
python "$ROOT/tools/image_query.py" models/demo/1 "http://127.0.0.1:$PORT" || { cat serve.log >&2; die "asking failed"; }
python -c "
from listwright_client import Client
with Client('http://127.0.0.1:$PORT', timeout=10) as client:
    print('listwright_client:', client.info().model)"
python -c "
from urllib.request import urlopen
for path in ('', 'main.js', 'vendor/preact.js', 'bundle'):
    print('page:', path, len(urlopen('http://127.0.0.1:$PORT/ui/' + path, timeout=10).read()), 'bytes')"
kill "$SERVICE"
wait "$SERVICE" || die "the service stopped with exit code $?"
SERVICE=
echo "stopped with exit code 0"
