"""``listwright publish``: give a bundle another name or version, and serve it."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.errors import BundleError, ListwrightError, plain_text
from listwright.ranking.manifest import FORMAT_VERSION, MAX_MANIFEST_BYTES, Manifest, parse
from listwright.ranking.remote import OBJECT_STORES, Store, Url, local_copy, location_argument
from listwright.ranking.stages import MANIFEST
from listwright.service.bundles import folder
from listwright.service.bundles.folder import CURRENT, NAME


def publish_as(source: Path, out: Path | Url) -> Manifest:
    """Publish a copy of a bundle under the name and version of another folder.

    The rankers, the golden lists and the report are the same to the byte. The manifest has the new name and version.

    Args:
        source: Folder of the bundle.
        out: Folder or URL ``NAME/VERSION`` to make. It is there whole, or not at all: at a URL, the manifest comes
            last.

    Returns:
        The new manifest.

    Raises:
        BundleError: if the source is no good bundle, or there is something at ``out``.
        OSError: if it cannot be written.
    """
    source_bundle = bundle.load(source)  # every hash, graph and golden list, as the service would before it serves it
    if isinstance(out, Url) and out.scheme not in OBJECT_STORES:
        remedy = f"publish to {', '.join(OBJECT_STORES)}, or to a folder to upload"
        raise BundleError(out, f"{out.scheme}:// cannot be written: {remedy}")
    if isinstance(out, Url) and out.depth < 2:
        raise BundleError(out, "expected NAME/VERSION below a bucket")
    name, version = (out if isinstance(out, Url) else out.absolute()).parent.name, out.name
    if out.exists() if isinstance(out, Path) else Store(out).read_small(MANIFEST, 2**20) is not None:
        raise BundleError(out, _EXISTS)
    if not (NAME.fullmatch(name) and NAME.fullmatch(version)):
        raise BundleError(
            out, "expected NAME/VERSION, each of letters, digits, '.', '_' and '-', beginning with no sign"
        )
    if isinstance(out, Url):
        with tempfile.TemporaryDirectory() as own:
            sealed = _seal_copy(source_bundle, source, Path(own) / version, name)
            _upload(Path(own) / version, sealed, Store(out))
        return sealed
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{version}.", ignore_cleanup_errors=True) as own:
        sealed = _seal_copy(source_bundle, source, Path(own) / version, name)
        bundle.publish(Path(own) / version, out)
    return sealed


_EXISTS = "exists already: a published version never changes; choose another version"


def _seal_copy(source_bundle: Bundle, source: Path, copy: Path, name: str) -> Manifest:
    """Copy a bundle into a new folder, under another name and the folder's version."""
    copy.mkdir()
    files = [entry.name for entry in source_bundle.manifest.files]
    for file in files:
        shutil.copyfile(source / file, copy / file)
    renamed = source_bundle.manifest.model_copy(
        update={"name": name, "version": copy.name, "format_version": FORMAT_VERSION}
    )
    sealed = bundle.seal(copy, renamed, files)
    if sealed.files != source_bundle.manifest.files:
        raise BundleError(source / MANIFEST, "does not fit its files any more: they changed while they were copied")
    return sealed


def _upload(copy: Path, manifest: Manifest, store: Store) -> None:
    """Upload a bundle, its manifest last: no reader takes a folder without one for a bundle."""
    for entry in manifest.files:
        try:
            store.write(entry.name, copy / entry.name, new=True)
        except FileExistsError:  # of an upload that was interrupted, or of another publisher
            digest = hashlib.sha256()
            for piece in store.stream(entry.name):
                digest.update(piece)
            if digest.hexdigest() != entry.sha256:
                fault = "exists with another content: remove it, if no other publish is under way, or choose a version"
                raise BundleError(store.url / entry.name, fault) from None
    try:
        store.write(MANIFEST, (copy / MANIFEST).read_bytes(), new=True)
    except FileExistsError:  # another process was faster
        raise BundleError(store.url, _EXISTS) from None


def _changes(models: Path | Url, sealed: Manifest) -> str:
    """Return how the features differ from those of the version that is served now; empty if they do not."""
    try:
        place = models / sealed.name / folder.read(models).versions[sealed.name]
        if isinstance(place, Path):
            current = bundle.read_manifest(place)
        else:
            answer = Store(place).read_small(MANIFEST, MAX_MANIFEST_BYTES)
            current = parse((answer and answer.content) or b"", place)
    except (KeyError, ListwrightError, OSError):  # nothing is served, or nothing that can be compared
        return ""
    if current.fingerprint == sealed.fingerprint:
        return ""
    before, after = set(current.feature_schema.names), set(sealed.feature_schema.names)
    names = ", ".join([f"+{name}" for name in sorted(after - before)] + [f"-{name}" for name in sorted(before - after)])
    return f"{names[:300] or 'kinds, order, categories or missing values'} against {sealed.name}/{current.version}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 if the bundle is published, 1 if it is refused."""
    parser = argparse.ArgumentParser(
        prog="listwright publish",
        description="Publish a copy of a bundle under another name or version, for example a challenger that won. The\n"
        "rankers stay the same to the byte. With --current, services that watch the folder swap to it.",
        epilog="examples:\n  listwright publish models/shop-next/1 models/shop/2\n"
        "  listwright publish models/shop-next/1 models/shop/2 --current\n"
        "  listwright publish models/shop-next/1 s3://models/shop/2 --current",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=location_argument, metavar="BUNDLE", help="folder or URL of the bundle")
    parser.add_argument("out", type=location_argument, metavar="NAME/VERSION", help="folder to make, or a URL")
    parser.add_argument("--current", action="store_true", help="write NAME/CURRENT, too")
    options = parser.parse_args(arguments)
    try:
        manifest = publish_as(local_copy(options.bundle), options.out)
        if options.current:
            out = options.out if isinstance(options.out, Url) else options.out.absolute()
            models = out.parent.parent
            if changes := _changes(models, manifest):
                print(
                    f"warning: other features than are served now: {changes}: callers must send these", file=sys.stderr
                )
            folder.point(models, manifest.name, manifest.version)
    except ListwrightError as error:
        print(f"error: {plain_text(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130
    pointer = f"; {options.out.parent / CURRENT} says {manifest.version}" if options.current else ""
    print(f"{options.out}: {manifest.name}/{manifest.version}{pointer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
