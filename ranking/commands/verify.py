"""``listwright verify``: check a bundle as the service would before it serves it, or a ranker in one ONNX file."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from listwright.ranking.bundle import Bundle, load
from listwright.ranking.errors import BundleError, ListwrightError, plain_text
from listwright.ranking.ranker_file import RankerFile
from listwright.ranking.remote import Url, download, location_argument


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 if the bundle is good, 1 if it is refused."""
    parser = argparse.ArgumentParser(
        prog="listwright verify",
        description="Check a bundle: manifest, file sizes and hashes, graphs, golden lists. "
        "Exit 1 and say why if the service would refuse it. "
        "With a file of listwright export: rank its golden lists and compare with the answers stored in it.",
        epilog="examples:\n  listwright verify models/demo/1\n  listwright verify s3://models/shop/2\n"
        "  listwright verify shop.onnx",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder",
        type=location_argument,
        metavar="BUNDLE",
        help="folder or URL of the bundle, or an ONNX file",
    )
    options = parser.parse_args(arguments)
    try:
        summary = _check(options.folder)
    except (ListwrightError, OSError) as error:
        print(f"refused: {plain_text(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(summary)
    return 0


def _check(location: Path | Url) -> str:
    """Check what is there, and return the text to print."""
    if isinstance(location, Path) and not location.is_dir() and (location.is_file() or location.suffix == ".onnx"):
        ranker = RankerFile(location)
        ranker.verify()
        return ranker.summary
    return _summary(_load(location))


def _load(location: Path | Url) -> Bundle:
    """Load a bundle; at a URL what is there is checked, whatever the cache has."""
    if isinstance(location, Path):
        return load(location)
    with tempfile.TemporaryDirectory() as own:
        try:
            return load(download(location, Path(own)))
        except BundleError as error:
            raise BundleError(location / error.file.name, error.reason) from None


def _summary(bundle: Bundle) -> str:
    manifest = bundle.manifest
    total = sum(entry.size for entry in manifest.files)
    second = "no second stage" if manifest.second_stage is None else f"cutoff {manifest.second_stage.cutoff}"
    lengths = ", ".join(map(str, manifest.validated_lengths))
    lines = [
        f"{manifest.name}/{manifest.version}: good",
        f"  format {manifest.format_version}, created {manifest.created_at:%Y-%m-%d %H:%M} UTC, "
        f"{len(manifest.files)} files, {total / 1e6:.2f} MB",
        f"  {len(manifest.feature_schema)} features, {manifest.fingerprint}",
        f"  strategy {manifest.strategy}, {second}" + (f", validated at list lengths {lengths}" if lengths else ""),
        *([] if manifest.default_reason is None else [f"  default: {plain_text(manifest.default_reason)}"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
