"""``listwright evaluate``: bundles judged on new labelled rows, from the command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from listwright.ranking.errors import RecipeError
from listwright.ranking.remote import local_copy, location_argument
from listwright.training.console.bars import elapsed_bars
from listwright.training.console.command import (
    add_weights_option,
    check_outputs,
    command_parser,
    print_table,
    repeatable,
    run_command,
    split_names,
    write_output,
)

UNDECIDED = 3
"""Exit code where no gate is broken, and one is undecided."""

_EXAMPLES = """examples:
  listwright evaluate models/shop/1 --data new.parquet --qid search_id --label clicked
  listwright evaluate models/shop/1 models/shop/2 --data new.parquet --qid search_id --label clicked
  listwright evaluate models/shop/1 --data november/ --qid search_id --label clicked --by market,device
  listwright evaluate models/shop/1 models/shop/2 --data new.parquet --qid search_id --label clicked \\
      --by market --gate "ndcg@10 >= -0.002"    exit code 1 if shop/2 is worse by more, 3 if undecided
  listwright evaluate models/shop/1 --data rows.csv --qid search_id --doc offer \\
      --run search-engine.run --qrels labels.qrels    another system's TREC run and labels
  listwright evaluate models/shop/1 --data test.txt --trec files     LETOR text; write a run and labels
  listwright evaluate models/shop/1 --data new.parquet --qid search_id --label clicked --out page.html
  listwright evaluate models/shop/1 --data new.parquet --qid search_id --label clicked \\
      --gate "log_loss <= 0.5" --gate "ece <= 0.02"    probabilities; lower is better
  listwright evaluate models/shop/1 models/shop/2 --data new.parquet --qid search_id --label booked \\
      --goal margin --weights margin=0.3 --gate "ndcg@10[margin] >= -0.005"    several goals

Rows of a query must stand together. Nothing is fitted. The protocol is that of a fit's report.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright evaluate``: 0 with an answer, 1 if it fails or a gate is broken, 3 if one is undecided, 130
    after Ctrl-C.
    """
    return run_command(_parser(), _evaluate, arguments, interrupted=_what_is_left)


def _evaluate(options: argparse.Namespace, console: Console) -> int:
    outputs = {"--out": options.out, "--json": options.json, "--trec": options.trec}
    locations = [location for location in (options.bundle, options.other) if location is not None]
    check_outputs(outputs, {"--data": options.data, "--run": options.run, "--qrels": options.qrels}, locations)
    with console.status("loading"):  # a second, which --help need not wait for
        from listwright.training.evaluation.gates import as_json, facts_of, parse_gate  # noqa: PLC0415
        from listwright.training.evaluation.judgement import Judging, judge  # noqa: PLC0415
        from listwright.training.reporting.judged_page import page  # noqa: PLC0415
    if options.jobs is not None and options.jobs < 1:
        raise RecipeError(f"--jobs {options.jobs}: expected 1 or more")
    if options.shared_only and options.run is None:
        raise RecipeError("--shared-only: name the run whose candidates are measured with --run")
    if options.other is not None and options.run is not None:
        raise RecipeError("--run and a second bundle: compare the first bundle with one of them")
    goals = tuple(dict.fromkeys(options.goal))
    try:
        gates = [parse_gate(gate, goals) for gate in options.gate]
    except ValueError as error:
        raise RecipeError(f"--gate {error}") from error
    judging = Judging(
        tuple(map(local_copy, locations)),
        options.data,
        qid=options.qid,
        label=options.label,
        weight=options.weight,
        doc=options.doc,
        by=tuple(dict.fromkeys(options.by or ())),
        strategy=options.strategy,
        run=options.run,
        qrels=options.qrels,
        trec=options.trec,
        shared_only=options.shared_only,
        goals=goals,
        weights=options.weights,
    )
    with elapsed_bars(console) as bars:
        judgement = judge(judging, jobs=options.jobs, progress=bars)
    verdicts = [as_json(judgement.decide(gate)) for gate in gates]
    # NAME/VERSION, wherever the bundles are here
    bundle_names = dict(zip(map(str, locations), judgement.rankers, strict=False))
    arguments = [bundle_names.get(argument, argument) for argument in options.arguments]
    command = repeatable("evaluate", arguments, names=judgement.rankers[: len(judging.bundles)])
    facts = {
        "command": command,
        **facts_of(judgement),
        "gates": dict(zip(map(str.strip, options.gate), verdicts, strict=True)),
    }
    _show(facts, console)
    write_output(options.out, lambda: page(facts), console)
    write_output(options.json, lambda: json.dumps(facts, indent=1) + "\n", console)
    if options.trec is not None:
        console.print(f"written: {options.trec}", markup=False, soft_wrap=True)
    outcomes = {verdict["verdict"] for verdict in verdicts}
    return 1 if "broken" in outcomes else UNDECIDED if "undecided" in outcomes else 0


def _what_is_left(options: argparse.Namespace) -> str:
    """Return how to go on after an interruption; the TREC files are written before the intervals are computed."""
    if options.trec is not None and options.trec.exists():
        return f"{options.trec} is written; the same command without --trec begins anew"
    return "nothing is written; the same command begins anew"


def _show(facts: dict[str, Any], console: Console) -> None:
    from listwright.training.evaluation.protocol import HEADLINE  # noqa: PLC0415
    from listwright.training.reporting import judged_page  # noqa: PLC0415
    from listwright.training.reporting.fit_figures import metric_name  # noqa: PLC0415
    from listwright.training.reporting.report import TABLE_METRICS, show_means  # noqa: PLC0415

    rankers = {name: name for name in facts["rankers"]}
    title = f"Lists: {facts['lists']:,}, candidates: {facts['rows']:,}"
    show_means(facts["metrics"], rankers, TABLE_METRICS, title, console)
    if further := judged_page.further_metrics(facts):
        show_means(facts["metrics"], rankers, further, "Goals and probabilities", console)
    for metric in (HEADLINE, *facts["further_segments"]) if facts["segments"] else ():
        title, head = f"{metric_name(metric)} by segment", judged_page.segment_head(facts, metric)
        print_table(console, title, head, judged_page.segment_rows(facts, metric), texts=2)
    notes = (f"Note: {note}" for note in (*facts["scope"], *facts["notes"]))
    for line in (judged_page.gain_sentence(facts), *judged_page.gate_sentences(facts), *notes):
        if line:
            console.print(line, markup=False, soft_wrap=True)
    console.print(f"Protocol: {facts['protocol']}", markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "evaluate", "Judge a bundle on new labelled rows, or compare it with another bundle or system.", _EXAMPLES
    )
    add = parser.add_argument
    add("bundle", type=location_argument, metavar="BUNDLE", help="folder or URL of the bundle")
    add("other", type=location_argument, nargs="?", metavar="OTHER", help="bundle to compare with it")
    add("--data", type=Path, required=True, metavar="FILE", help="Parquet, CSV (also gzipped), LETOR text, or a folder")
    add("--qid", metavar="COL", help="column with the query id; not for LETOR text or joined rows")
    add("--label", metavar="COL", help="column with the label, 0 = irrelevant; likewise")
    add("--weight", metavar="COL", help="column with the weight of a row (default: all alike)")
    add("--by", type=split_names, action="extend", metavar="COL,COL", help="columns with segments")
    add(
        "--gate",
        action="append",
        default=[],
        metavar="GATE",
        help='"METRIC >= NUMBER", a bound of the mean, or with OTHER or --run of the gain; "log_loss <= NUMBER" and '
        '"ece <= NUMBER" of probabilities: exit code 0 if the whole 95 %% interval keeps it, 1 if none of it does, or '
        "none of that of a segment, 3 if undecided; repeatable",
    )
    add(
        "--goal",
        action="append",
        default=[],
        metavar="COL",
        help="column with the values of a further goal, from 0: adds ndcg@10[COL], whose gains they are; repeatable",
    )
    add_weights_option(parser)
    add("--run", type=Path, metavar="FILE", help="TREC run to compare with the bundle; give --doc")
    add("--shared-only", action="store_true", help="measure only candidates that both the data and the run have")
    add("--qrels", type=Path, metavar="FILE", help="TREC labels, in place of --label; give --doc")
    add("--doc", metavar="COL", help="column with the candidate's id in TREC files (default: its number in the list)")
    add("--trec", type=Path, metavar="FOLDER", help="write labels and runs as TREC files")
    add("--strategy", default="auto", metavar="NAME", help="as in a request (default: auto)")
    add("--out", type=Path, metavar="PAGE", help="write a page with figures")
    add("--json", type=Path, metavar="FILE", help="write the numbers")
    add("--jobs", type=int, metavar="N", help="parts at a time (default: cores)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
