"""``listwright export``: write a bundle's ranker as one ONNX file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from listwright.ranking.bundle import load
from listwright.ranking.remote import local_copy, location_argument
from listwright.training.console.command import check_outputs, command_parser, run_command
from listwright.training.export.ranker_file import write_ranker

_EXAMPLES = """examples:
  listwright export models/shop/1 --onnx shop.onnx
  listwright export models/shop/1 --onnx shop.onnx --strategy qilcm
  listwright export models/shop/1 --onnx shop-2.onnx --specialist 2
  listwright export models/shop/1 --onnx shop.onnx --codes

The file takes one list of candidates: numbers, float32 (candidates, N), missing as NaN, and categories,
text (candidates, J), missing as "". It gives order, best first, scores as with raw_scores, relevance, and
first_stage_scores. Run it on one thread. docs/anywhere.md has examples in seven languages.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright export``: 0 when the file is written, 1 with one line if it fails, 130 after Ctrl-C."""
    return run_command(_parser(), _export, arguments, interrupted="no file was written")


def _export(options: argparse.Namespace, console: Console) -> None:
    location = options.bundle
    check_outputs({"--onnx": options.onnx}, {}, [location])
    bundle = load(location if isinstance(location, Path) else local_copy(location))
    written = write_ranker(
        bundle, options.onnx, strategy=options.strategy, specialist=options.specialist, codes=options.codes
    )
    console.print(written.summary, soft_wrap=True, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "export", "Write a bundle's ranker as one ONNX file, which ONNX Runtime 1.24 or newer runs.", _EXAMPLES
    )
    parser.add_argument("bundle", type=location_argument, metavar="BUNDLE", help="folder or URL of the bundle")
    parser.add_argument("--onnx", type=Path, required=True, metavar="FILE", help="file to write, or to replace")
    parser.add_argument("--strategy", default="auto", metavar="NAME", help="ranker to write (default: auto, as served)")
    parser.add_argument("--specialist", type=int, metavar="N", help="specialist to write, from 0")
    parser.add_argument("--codes", action="store_true", help="one float32 input, features, with categories as codes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
