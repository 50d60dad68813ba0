"""``python tools/page_libraries.py``: the libraries of the page, from npm into ``service/ui/static/vendor``.

``--check`` compares what lies there with ``vendored.json``, without a network. ``--axe`` fetches what only tests need,
into ``build/axe``, and ``--onnxruntime`` what the site of ``docs/`` ranks with, into ``build/onnxruntime``. npm does
the fetching, from whatever registry it is set up for; no script of a package runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "service" / "ui" / "static" / "vendor"
RECORD = "vendored.json"
AXE = ROOT / "build" / "axe"
ONNXRUNTIME = ROOT / "build" / "onnxruntime"

VERSIONS = {"preact": "11.2.0", "htm": "3.1.1", "uplot": "1.6.32"}
AXE_VERSION = "4.14.1"
ONNXRUNTIME_VERSION = "1.30.0"
ONNXRUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")

FILES = {
    "preact.js": ("preact", "dist/preact.mjs"),
    "preact-hooks.js": ("preact", "hooks/dist/hooks.mjs"),
    "htm.js": ("htm", "dist/htm.module.js"),
    "uplot.js": ("uplot", "dist/uPlot.iife.min.js"),
    "uplot.css": ("uplot", "dist/uPlot.min.css"),
    **{f"{name}-LICENSE.txt": (name, "LICENSE") for name in VERSIONS},
}
"""By our name: the package and its own name there."""

CHANGES = {
    "preact-hooks.js": ('from"preact"', 'from"./preact.js"'),
    "uplot.js": ("var uPlot=", "export const uPlot="),
}
"""A browser finds no module by the name of its package, and uPlot's module is not minified: its script is."""


@dataclass(frozen=True)
class VendoredFile:
    """One file of a library.

    Args:
        name: Name of the file in this repository.
        package, version, licence: Name, version and licence of the package, as npm knows it.
        source: Path in the package.
        sha256, source_sha256: SHA-256 of the file here, and in the package; they differ where it was changed.
        change: Text that was replaced, and its replacement; empty where nothing was.
    """

    name: str
    package: str
    version: str
    licence: str
    source: str
    sha256: str
    source_sha256: str
    change: tuple[str, ...] = ()


def fetch(vendor: Path = VENDOR) -> None:
    """Replace the libraries and their record."""
    with tempfile.TemporaryDirectory() as folder:
        packages = _installed(Path(folder), VERSIONS)
        shutil.rmtree(vendor, ignore_errors=True)
        vendor.mkdir(parents=True)
        record = [_take(vendor, packages, name) for name in FILES]
    text = json.dumps([asdict(file) for file in record], indent=1) + "\n"
    (vendor / RECORD).write_text(text, encoding="utf-8")


def _installed(folder: Path, versions: dict[str, str]) -> Path:
    packages = [f"{name}@{version}" for name, version in versions.items()]
    command = ["npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--silent", *packages]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "node_modules"


def _take(vendor: Path, packages: Path, name: str) -> VendoredFile:
    package, source = FILES[name]
    metadata = json.loads((packages / package / "package.json").read_text(encoding="utf-8"))
    content = (packages / package / source).read_text(encoding="utf-8")
    before, after = CHANGES.get(name, ("", ""))
    if before and content.count(before) != 1:
        raise SystemExit(f"{package} {metadata['version']}: {source} does not have {before!r} once")
    changed = content.replace(before, after) if before else content
    (vendor / name).write_text(changed, encoding="utf-8")
    change = (before, after) if before else ()
    return VendoredFile(
        name, package, metadata["version"], metadata["license"], source, _digest(changed), _digest(content), change
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_record(vendor: Path = VENDOR) -> list[VendoredFile]:
    """Read the record of vendored files."""
    entries = json.loads((vendor / RECORD).read_text(encoding="utf-8"))
    return [VendoredFile(**{**entry, "change": tuple(entry["change"])}) for entry in entries]


def faults(vendor: Path = VENDOR) -> list[str]:
    """List where the folder, its record and this script differ; empty where they agree."""
    differences = []
    record = {file.name: file for file in read_record(vendor)}
    present = {path.name for path in vendor.iterdir()} - {RECORD}
    differences += [f"{name} is not in the record" for name in sorted(present - record.keys())]
    differences += [f"{name} is not there" for name in sorted(record.keys() - present)]
    differences += [f"{name} is not in the record" for name in FILES if name not in record]
    for name in sorted(present & record.keys()):
        file, content = record[name], (vendor / name).read_text(encoding="utf-8")
        if (file.package, file.source) != FILES.get(name) or file.version != VERSIONS[file.package]:
            differences.append(f"{name} is recorded as {file.source} of {file.package} {file.version}")
        if _digest(content) != file.sha256:
            differences.append(f"{name} is not the file that was recorded")
        original = content.replace(file.change[1], file.change[0]) if file.change else content
        if _digest(original) != file.source_sha256:
            differences.append(f"{name} is not the package's own file but for its change")
    return differences


def fetch_axe(folder: Path = AXE) -> Path:
    """Fetch axe-core, which finds faults of accessibility; for tests only, so no package has it."""
    with tempfile.TemporaryDirectory() as temporary:
        packages = _installed(Path(temporary), {"axe-core": AXE_VERSION})
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(packages / "axe-core" / "axe.min.js", folder / "axe.min.js")
    return folder / "axe.min.js"


def fetch_onnxruntime(folder: Path = ONNXRUNTIME) -> Path:
    """Fetch ONNX Runtime for browsers: its script, and its 14 MB of WebAssembly."""
    with tempfile.TemporaryDirectory() as temporary:
        packages = _installed(Path(temporary), {"onnxruntime-web": ONNXRUNTIME_VERSION})
        folder.mkdir(parents=True, exist_ok=True)
        for name in ONNXRUNTIME_FILES:
            shutil.copy(packages / "onnxruntime-web" / "dist" / name, folder / name)
    return folder


def main() -> int:
    """Run the command line; return 0 if all files are as recorded."""
    parser = argparse.ArgumentParser(description="Libraries of the page.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="compare with the record, and fetch nothing")
    only.add_argument("--axe", action="store_true", help="fetch axe-core for the tests")
    only.add_argument("--onnxruntime", action="store_true", help="fetch ONNX Runtime for browsers")
    options = parser.parse_args()
    if options.axe:
        sys.stdout.write(f"{fetch_axe()}\n")
        return 0
    if options.onnxruntime:
        sys.stdout.write(f"{fetch_onnxruntime()}\n")
        return 0
    if not options.check:
        fetch()
    for fault in faults():
        sys.stderr.write(f"{fault}\n")
    return bool(faults())


if __name__ == "__main__":
    sys.exit(main())
