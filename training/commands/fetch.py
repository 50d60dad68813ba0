"""``listwright fetch``: copy a bundle that a tracked fit logged, or that is registered, out of MLflow."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from listwright.ranking import bundle
from listwright.ranking.errors import BundleError, RecipeError, plain_text
from listwright.ranking.manifest import Manifest
from listwright.ranking.stages import MANIFEST
from listwright.training.pipeline.tracking import check_mlflow, import_mlflow, redact

mlflow = import_mlflow()


def fetch(model: str, out: Path) -> Manifest:
    """Copy a bundle out of MLflow's current tracking server, verify it, and publish it.

    Args:
        model: ``models:/NAME@ALIAS``, ``models:/NAME/VERSION`` or ``runs:/RUN/model``.
        out: folder to make; it is there whole, or not at all.

    Returns:
        The bundle's manifest.

    Raises:
        BundleError: if the model has no bundle, the bundle is damaged, or there is something at ``out``.
        MlflowException: if there is no such model, or the server does not answer.
        OSError: if the folder cannot be written.
    """
    if out.exists():
        raise BundleError(out, "exists already: a published version never changes; choose another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", ignore_cleanup_errors=True) as own:
        folder = Path(mlflow.artifacts.download_artifacts(model, dst_path=own))
        bundles = [path.parent for path in folder.rglob(MANIFEST)]
        if len(bundles) != 1:
            fault = f"holds {len(bundles)} bundles: name a model that listwright fit --track has logged"
            raise BundleError(Path(model), fault)
        try:
            manifest = bundle.load(bundles[0]).manifest
        except BundleError as error:  # names a folder that is removed
            raise BundleError(Path(model) / error.file.name, error.reason) from None
        bundle.publish(bundles[0], out)
    return manifest


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 if the bundle is there, 1 if not, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="listwright fetch",
        description="Copy a bundle out of MLflow, verify it as the service would, and put it into a folder.",
        epilog="examples:\n  listwright fetch models:/shop@champion --out models/shop/3\n"
        "  listwright fetch runs:/0a1b2c/model --track sqlite:///runs.db --out models/shop/3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN/model")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the bundle, NAME/VERSION")
    parser.add_argument("--track", metavar="URI", help="of MLflow (default: $MLFLOW_TRACKING_URI)")
    options = parser.parse_args(arguments)
    try:
        if options.track is not None:
            file = check_mlflow(options.track)
            if file is not None and not file.exists():
                raise RecipeError(f"--track {options.track}: there is no file {file}; name the one of the fit")
            mlflow.set_tracking_uri(options.track)
        elif not mlflow.is_tracking_uri_set():
            raise RecipeError("no server is named: say --track URI, or set MLFLOW_TRACKING_URI")
        manifest = fetch(options.model, options.out)
    except Exception as error:  # of MLflow, SQLAlchemy, requests, boto3 and others
        print(f"error: {plain_text(redact(str(error)))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(f"{options.out}: {manifest.name}/{manifest.version}, verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
