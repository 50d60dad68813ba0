"""The demo as the site ranks it in a reader's browser: the page of the service without its service, and ONNX files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from listwright.ranking.bundle import load
from listwright.service.ui.routes import STATIC, describe_bundle
from listwright.training.export.ranker_file import write_ranker

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo" / "1"
OWN = Path(__file__).with_name("ranker")
ONNXRUNTIME = ROOT / "build" / "onnxruntime"
"""Folder into which ``python tools/page_libraries.py --onnxruntime`` fetches ONNX Runtime for browsers."""

FOLDER = "ranker"
"""Folder of the page in the site."""

PAGE = "browser.md"
"""Page of ``docs/`` that shows it in a frame."""

_STATIC_FILES = (
    "icon.svg",
    "shared/*.js",
    "try/*.js",
    "styles/base.css",
    "styles/try.css",
    "vendor/preact*",
    "vendor/htm*",
)
"""Files of the service's page."""

_ABSENT = (
    '!!! note "Nothing ranks here"\n    This copy of the site lacks ONNX Runtime: '
    "where npm is installed, `make docs` adds it, and the demo's files.\n"
)


def ranker_files(onnxruntime: Path = ONNXRUNTIME) -> dict[str, bytes]:
    """Return the files of the page by their paths in the site; none without ONNX Runtime.

    Args:
        onnxruntime: Folder with ONNX Runtime for browsers.
    """
    libraries = sorted(onnxruntime.glob("*")) if onnxruntime.is_dir() else []
    if not libraries:
        return {}
    files = {
        path.relative_to(STATIC).as_posix(): path.read_bytes()
        for glob in _STATIC_FILES
        for path in sorted(STATIC.glob(glob))
    }
    for name, target in {"service.js": "shared/", "docs.css": "styles/", "main.js": "", "index.html": ""}.items():
        files[target + name] = (OWN / name).read_bytes()
    files |= {f"onnxruntime/{path.name}": path.read_bytes() for path in libraries}
    return {f"{FOLDER}/{name}": content for name, content in (files | _demo_files()).items()}


def fill_page(markdown: str, *, has_ranker: bool) -> str:
    """Return the Markdown of the page, with a note in place of the frame where the site has no files for it."""
    if has_ranker:
        return markdown
    start, end = markdown.index("<iframe"), markdown.index("</script>") + len("</script>")
    return markdown[:start] + _ABSENT + markdown[end:]


def _demo_files() -> dict[str, bytes]:
    """Export each ranker of the demo, and collect what the page shows before they are loaded."""
    bundle = load(DEMO)
    manifest = bundle.manifest
    files, answers = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for strategy in (name for name in manifest.strategies if name != "srm"):
            written = write_ranker(bundle, Path(folder) / f"{strategy}.onnx", strategy=strategy)
            files[written.path.name] = written.path.read_bytes()
            ranked = (
                written.rank(np.array(golden.features, dtype=np.float64)) for golden in written.facts.golden_lists
            )
            answers[strategy] = [
                {name: values.tolist() for name, values in answer._asdict().items() if values is not None}
                for answer in ranked
            ]
    info = {
        "model": manifest.name,
        "version": manifest.version,
        "strategies": ["auto", *answers],
        "default_strategy": bundle.reranker.default_strategy,
        "specialists": [],
    }
    page_data = describe_bundle(bundle).model_dump(mode="json", include={"features", "golden", "golden_fault"})
    files["bundle.json"] = json.dumps({"info": info, "shown": page_data, "answers": answers}).encode()
    return files
