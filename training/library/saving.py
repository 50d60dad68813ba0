"""A bundle in memory, written under a name of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from listwright.ranking import bundle
from listwright.ranking.manifest import Manifest
from listwright.training.workspace import check_names


def save_as(out: Path, manifest: Manifest, contents: Mapping[str, bytes], report: Mapping[str, Any]) -> None:
    """Seal and publish the files of a bundle as ``.../NAME/VERSION``.

    Args:
        out: where; must not exist.
        manifest: as the bundle was sealed before.
        contents: every other file by name.
        report: what ``report.json`` holds; empty without one.

    Raises:
        RecipeError: if the path cannot name a bundle.
        BundleError: if there is something already.
    """
    check_names(out)
    name, version = out.absolute().parent.name, out.name
    files = dict(contents)
    if "repeat" in report:
        from listwright.training.reporting.report import renamed  # noqa: PLC0415 - with the page

        pages = renamed(files["report.json"].decode(), f"{name}/{version}")
        files |= {file: text.encode() for file, text in pages.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".", suffix=".partial", dir=out.parent))
    try:
        for file, content in files.items():
            (folder / file).write_bytes(content)
        bundle.seal(folder, manifest.model_copy(update={"name": name, "version": version}), files)
        bundle.publish(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
