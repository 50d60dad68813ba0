"""``listwright compare``: the command line of a comparison on traffic."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from listwright.ranking.plain_file import files_below
from listwright.training.console.command import (
    check_outputs,
    command_parser,
    repeatable,
    run_command,
    split_names,
    write_output,
)

_EXAMPLES = """examples:
  listwright compare rows.parquet
  listwright compare rows.parquet --out comparison.html
  listwright compare rows.parquet --experiment summer --json comparison.json
  listwright compare rows.parquet --metric ndcg@5 --metric revenue
  listwright compare rows.parquet --share 0.1     a tenth of the units had the challenger
  listwright compare rows.parquet --metric n_purchase     interleaving, credit by purchases
  listwright compare rows.parquet --difference 0.01       the smallest relevant difference

rows.parquet is what listwright join writes, or a folder of such files. The rows say
themselves whether lists were interleaved or units split. You may look every day.
docs/compare.md says how to read the answer.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright compare``: 0 with an answer, even "no difference", 1 with one line on failure, 130 on Ctrl-C."""
    advice = "nothing is written; the same command begins anew"
    return run_command(_parser(), _compare, arguments, interrupted=advice)


def _compare(options: argparse.Namespace, console: Console) -> None:
    check_outputs({"--out": options.out, "--json": options.json}, {"ROWS": options.rows})
    with console.status("reading judged rows"):
        from listwright.training.data.tables.judged import JUDGED  # noqa: PLC0415
        from listwright.training.traffic.compare.compare import compare  # noqa: PLC0415 - seconds that --help need not wait
        from listwright.training.traffic.compare.page import page  # noqa: PLC0415
        from listwright.training.traffic.compare.text import json_values, text  # noqa: PLC0415

        files_below(options.rows, [JUDGED], lambda note: console.print(f"Note: {note}", markup=False, soft_wrap=True))
        comparison = compare(
            options.rows,
            experiment=options.experiment,
            metrics=tuple(dict.fromkeys(options.metric or ())),
            challenger=options.challenger,
            share=options.share,
            target=options.difference,
        )
    console.print(text(comparison), markup=False, soft_wrap=True)
    command = repeatable("compare", options.arguments)
    facts = {"command": command, **json_values(comparison)}
    write_output(options.out, lambda: page(comparison, command=command), console)
    write_output(options.json, lambda: json.dumps(facts, indent=1) + "\n", console)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "compare",
        "Compare two rankers on traffic: interleaved lists, or units split between them. The\n"
        "answer is one sentence, with an interval that holds however often you look.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("rows", type=Path, metavar="ROWS", help="judged rows: a Parquet file, or a folder of them")
    add("--experiment", metavar="NAME", help="which one, where the rows hold several")
    add(
        "--metric",
        type=split_names,
        action="extend",
        metavar="NAME,NAME",
        help="hit, mrr, map, ndcg@K, err@K, or a column that is summed over the list (revenue, n_purchase); "
        "repeatable, the first decides (default of a split: hit, mrr, ndcg@10; of an interleaving: hit)",
    )
    add("--challenger", metavar="ARM", help="of a split with several challengers")
    add("--share", type=float, default=0.5, metavar="P", help="planned part of the challenger's units (default: 0.5)")
    add(
        "--difference",
        type=float,
        metavar="D",
        help="smallest relevant difference in the deciding metric: the always-valid interval is narrowest for it; "
        "choose it before you see data (default: preference 0.02, split 5 %% of control's mean)",
    )
    add("--out", type=Path, metavar="PAGE", help="write a page with figures")
    add("--json", type=Path, metavar="FILE", help="write the numbers, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
