"""``python -m benchmarks.tables``: public tables, a default fit beside other rankers, rules for columns, networks.

======================  ==============================================================================================
``build FOLDER``        writes ``FOLDER/TABLE.parquet`` for each table whose source can be had, and says which cannot
``run FOLDER``          fits entrants to all splits; writes ``benchmarks/results/tables.*``
``columns FOLDER``      fits LightGBM without and with list-relative columns; writes ``benchmarks/results/columns.json``
``diagnose FOLDER``     diagnoses tables that ``columns`` has measured; writes ``benchmarks/results/predictions.json``
``context FOLDER``      fits QILCM, its ablations and other networks; writes ``benchmarks/results/context.*``
======================  ==============================================================================================

All but ``build`` keep what is finished in FOLDER, a line for each table, split and entrant, and go on there. Seconds
are of the machine as it was; rankers that are not a fit of Listwright have one thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from benchmarks.tables import builders, columns, comparison, context, entrants, predictions
from benchmarks.tables.runs import SPLITS, Key, Row, measure_missing, read_rows, read_split
from listwright_lab import machine

COMMAND = "python -m benchmarks.tables"


def build(options: argparse.Namespace) -> None:
    """Write the tables that can be had."""
    options.folder.mkdir(parents=True, exist_ok=True)
    sources = builders.Sources(options.folder / "packages", options.bayesm, options.letor)
    for name in options.only or builders.TABLES:
        try:
            rows = builders.build(name, sources)
        except builders.MissingSourceError as missing:
            print(f"{name} is skipped: {missing}", flush=True)
            continue
        rows.write_parquet(options.folder / f"{name}.parquet")
        source = f"{builders.TABLES[name].source}; {builders.TABLES[name].licence}"
        print(f"{name}: {rows['qid'].n_unique()} lists, {len(rows)} rows, of {source}", flush=True)


def keys_of(options: argparse.Namespace, names: list[str]) -> list[Key]:
    """Return what to measure: first split 1 of every table, then split 2, so that an early end leaves all tables."""
    tables = [name for name in options.only or builders.TABLES if (options.folder / f"{name}.parquet").exists()]
    if not tables:
        raise SystemExit(f"{options.folder} has none of these tables: make them by {COMMAND} build {options.folder}")
    return [(table, split, name) for split, table, name in product(options.splits, tables, names)]


def run(options: argparse.Namespace) -> None:
    """Fit what is missing, and write what all of it says."""
    keys, lines = keys_of(options, options.entrants), options.folder / "entrants.jsonl"
    measure_missing(lines, keys, lambda key: entrants.measure(options.folder / f"{key[0]}.parquet", key[1], key[2]))
    protocol = "NDCG@10 of test queries, split by query 60/20/20; equal scores share ranks; seconds: mean of a split"
    result = comparison.compare(read_rows(lines).values())
    print(machine.save("tables", f"{COMMAND} run FOLDER", {"protocol": protocol, **result}, folder=options.results))
    if "all" in result:
        print(comparison.draw(result, options.results / "tables.svg"))


def choose_columns(options: argparse.Namespace) -> None:
    """Fit what is missing, and write what each rule loses."""
    lines, name = options.folder / "columns.jsonl", "columns"

    def measure(key: Key) -> Row:
        return columns.measure(read_split(options.folder / f"{key[0]}.parquet", key[1]))

    measure_missing(lines, keys_of(options, [name]), measure)
    result = columns.summarise(list(read_rows(lines).values()))
    print(machine.save(name, f"{COMMAND} columns FOLDER", result, folder=options.results))


def diagnose(options: argparse.Namespace) -> None:
    """Diagnose what is missing, and write what the diagnoses predict, and what is so."""
    lines, name = options.folder / "predictions.jsonl", "predictions"
    keys = keys_of(options, [name])
    measure_missing(lines, keys, lambda key: predictions.measure(options.folder / f"{key[0]}.parquet", key[1]))
    result = predictions.judge(read_rows(lines), read_rows(options.folder / "columns.jsonl").values())
    print(machine.save(name, f"{COMMAND} diagnose FOLDER", result, folder=options.results))


def measure_context(options: argparse.Namespace) -> None:
    """Fit what is missing, and write what each part of the context gains."""
    lines = options.folder / "context.jsonl"
    keys = [key for key in keys_of(options, options.parts) if context.can_measure(options.folder, key)]
    measure_missing(lines, keys, lambda key: context.measure(options.folder / f"{key[0]}.parquet", key[1], key[2]))
    result = context.compare(read_rows(lines).values())
    print(machine.save("context", f"{COMMAND} context FOLDER", result, folder=options.results))
    if result["over_lightgbm"]:
        print(context.draw(result, options.results / "context.svg"))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=formatter)
    commands = parser.add_subparsers(required=True)
    for name, command in (
        ("build", build),
        ("run", run),
        ("columns", choose_columns),
        ("diagnose", diagnose),
        ("context", measure_context),
    ):
        own = commands.add_parser(name)
        own.set_defaults(command=command)
        own.add_argument("folder", type=Path, metavar="FOLDER")
        own.add_argument("--only", type=_names(list(builders.TABLES)), metavar="TABLE,...")
        if name == "build":
            where = "folder with margarine.rda and orangeJuice.rda"
            own.add_argument("--bayesm", type=Path, default=Path("/usr/lib/R/site-library/bayesm/data"), help=where)
            where = "folder with the folders mq2008, ohsumed and mslr-sample"
            own.add_argument("--letor", type=Path, default=Path("letor"), help=where)
            continue
        own.add_argument("--splits", type=_whole_numbers, default=range(1, SPLITS + 1), metavar="N,...")
        own.add_argument("--results", type=Path, default=machine.RESULTS, metavar="FOLDER", help="where the JSON goes")
        if name == "run":
            among = list(entrants.ENTRANTS)
            own.add_argument("--entrants", type=_names(among), default=among, metavar="NAME,...", help=", ".join(among))
        if name == "context":
            own.add_argument("--parts", type=_parts, default=context.PARTS, metavar="N,...", help=_PARTS)
    options = parser.parse_args(arguments)
    options.command(options)
    return 0


def _whole_numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


_PARTS = "; ".join(f"{number}: {part}" for number, part in enumerate(context.PARTS, start=1))


def _parts(text: str) -> list[str]:
    return [context.PARTS[number - 1] for number in _whole_numbers(text)]


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        for name in (names := text.split(",")):
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}: use {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
