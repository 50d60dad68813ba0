"""Bundles that are altered, with hashes that say that nobody altered them."""

import hashlib
import json

from listwright.ranking.stages import MANIFEST


def edit_manifest(folder, change):
    """Alter fields and make its own hash agree."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    others = {name: value for name, value in manifest.items() if name != "sha256"}
    text = json.dumps(others, sort_keys=True, separators=(",", ":"))
    (folder / MANIFEST).write_text(json.dumps(others | {"sha256": hashlib.sha256(text.encode()).hexdigest()}))


def rehash(folder, name):
    """Make the manifest agree with a file that was changed: hashes alone must not be what refuses it."""

    def change(manifest):
        entry = next(entry for entry in manifest["files"] if entry["name"] == name)
        content = (folder / name).read_bytes()
        entry |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}

    edit_manifest(folder, change)
