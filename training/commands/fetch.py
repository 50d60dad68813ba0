"""``listwright fetch``: copy a bundle that a tracked fit logged, or that is registered, out of MLflow."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from listwright.ranking.errors import RecipeError, plain_text
from listwright.training.pipeline.tracking import check_mlflow, fetch, import_mlflow, redact

mlflow = import_mlflow()


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
