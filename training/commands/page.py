"""``listwright page``: report.html again from report.json."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jinja2 import TemplateError

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import from_json
from listwright.training.console.command import check_outputs
from listwright.training.reporting.fit_page import fit_page


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright page``: 0 when the page is written, 1 with one line if it fails."""
    parser = argparse.ArgumentParser(prog="listwright page", description="Make report.html again from report.json.")
    parser.add_argument("report", type=Path, metavar="report.json")
    parser.add_argument("page", type=Path, metavar="PAGE")
    options = parser.parse_args(arguments)
    try:
        check_outputs({"PAGE": options.page}, {"report.json": options.report})
        atomic_write(options.page, fit_page(from_json(options.report.read_bytes())))
    except (OSError, RecipeError) as error:
        return _refused(str(error))
    except KeyError as error:
        return _refused(f"{options.report} is no report.json of a fit: it has no {error}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, TemplateError) as error:
        return _refused(f"{options.report} is no report.json of a fit: {error}")
    return 0


def _refused(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 1
