"""What was served becomes what is learnt, and a new ranker proves itself on traffic.

A made-up shop sends the visits of made-up people to the real service. Its first bundle is LightGBM, fitted on a few
judged lists. The served log and the clicks become a second bundle. The log says what it would have got; then it is
shadowed, interleaved with the first one, compared and promoted. At the end the truth, which only the shop knows, says
whether that was right.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from steps import Loop, Sizes
from visitors import opened

LABELS = "[labels]\nclick = 1\n"
MARK = ".listwright-loop"
"""A file in the folder of a run: only such a folder is emptied."""


def main(arguments: list[str] | None = None) -> int:
    """Run the loop; return 0 if it came to its end."""
    parser = argparse.ArgumentParser(
        prog="python tools/loop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/loop"), help="folder to write; one of an earlier run is emptied first"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the visits (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    folder, began = options.out.resolve(), time.monotonic()
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        parser.error(f"--out {options.out}: holds something else than an earlier run; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "served").mkdir(parents=True)
    (folder / MARK).touch()
    (folder / "labels.toml").write_text(LABELS, encoding="utf-8")
    sizes = Sizes.scaled(options.share)
    shop = opened(options.seed, judged=sizes.judged, visits=sizes.visits, held_out=sizes.held_out)
    console = Console(highlight=False)
    loop = Loop(folder, shop, sizes, console)
    try:
        loop.run()
    except KeyboardInterrupt:
        console.print(f"\ninterrupted; {options.out} has what there is, and the next run begins anew", markup=False)
        return 130
    (folder / "loop.json").write_text(json.dumps(loop.facts, indent=1) + "\n", encoding="utf-8")
    console.print(f"\n{options.out / 'comparison.html'}\n{time.monotonic() - began:.0f} s", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
