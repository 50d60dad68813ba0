"""A table means the same in every format, type and door: one schema, the same rows, the same scores."""

import csv
import functools
import random
from decimal import Decimal

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.features import MISSING_WORDS, PADDING, Feature, FeatureSchema, spelled
from listwright.ranking.first_stage import LightGbmFirstStage
from listwright.service.wire.json_matrix import to_candidates
from listwright.service.wire.schemas import RerankRequest
from listwright.training.data import memory
from listwright.training.data.cells import codes_in, names_in, numbers_in
from listwright.training.data.dataset import fit_schema
from listwright.training.data.tables import frames, table
from listwright.training.recipe.data import TableData
from listwright.training.scoring.frames import batches
from listwright.training.scoring.worker import lists_of
from support.strategies import scale_examples

SPLIT_SOURCES = ("zip", "floor")
SPEC = TableData(qid="q", label="y", categorical=SPLIT_SOURCES)
IDS = ("070", "70", "a b", "ü", "9007199254740993", "7-1")
NUMBERS = st.none() | st.integers(-400, 400).map(lambda quarter: quarter / 4)
CELLS = {
    "price": NUMBERS,
    "stars": st.none() | st.integers(-(2**60), 2**60),
    "city": st.none() | st.sampled_from(["Bern", "Oslo", 'a "b", c', "x\ny", "ü"]),
    "direct": st.none() | st.booleans(),
    "zip": st.none() | st.sampled_from(["01234", "1234", "00501", "9"]),
    "floor": st.none() | st.integers(-2, 12),
}
FITTED = FeatureSchema(
    features=(
        Feature(name="price", missing_in_training=True),
        Feature(name="stars", missing_in_training=True),
        Feature(name="city", kind="categorical", categories=("Oslo", "Bern", "x\ny")),
        Feature(name="direct", kind="categorical", categories=("false", "true")),
        Feature(name="zip", kind="categorical", categories=("00501", "01234", "1234")),
        Feature(name="floor", kind="categorical", categories=("-1", "0", "10", "2")),
    )
)


@st.composite
def tables(draw):
    """Columns by name, of a few queries; every column has a value."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=len(IDS)))
    rows = sum(sizes)
    cells = {
        name: draw(st.lists(values, min_size=rows, max_size=rows).filter(lambda v: any(c is not None for c in v)))
        for name, values in CELLS.items()
    }
    qids = [qid for qid, size in zip(draw(st.permutations(IDS)), sizes, strict=False) for _ in range(size)]
    return {"q": qids, "y": draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), **cells}


def typed(columns):
    kinds = {"q": pl.String, "y": pl.Int32, "price": pl.Float64, "stars": pl.Int64, "city": pl.String}
    kinds |= {"direct": pl.Boolean, "zip": pl.String, "floor": pl.Int8}
    return pl.DataFrame({name: pl.Series(name, columns[name], dtype=kind) for name, kind in kinds.items()})


def as_csv(columns, path):
    typed(columns).write_csv(path)


def as_quoted_csv(columns, path):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        writer.writerows(
            zip(*([("" if cell is None else cell) for cell in cells] for cells in columns.values()), strict=True)
        )


def as_pandas_csv(columns, path):
    """With an index, and fractions where whole numbers have a gap; these are 2^53 at most there."""
    pd.DataFrame(columns).to_csv(path)


def as_odd_csv(columns, path):
    """Padded, with words for what is missing, with blank lines, and booleans in any case."""
    rng = random.Random(repr(columns))

    def odd(cell):
        text = rng.choice([*MISSING_WORDS]) if cell is None else str(cell)
        if cell is None or isinstance(cell, bool):
            text = rng.choice([text, text.upper(), text.title()])
        return rng.choice(["", "", " ", "\t", PADDING]) + text + rng.choice(["", "", "  ", "\u3000"])

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(f" {name} " for name in columns)
        for row in zip(*columns.values(), strict=True):
            file.write(rng.choice(["", "", "\n", "  \n", ",,,,,,,\n"]))
            writer.writerow(map(odd, row))
        file.write("\n\n")


def as_parquet(columns, path):
    typed(columns).write_parquet(path, row_group_size=3)


def as_text_parquet(columns, path):
    typed(columns).with_columns(pl.all().cast(pl.String)).write_parquet(path)


def as_decimals(columns, path):
    frame = typed(columns)
    exact = {
        name: [None if cell is None else Decimal(cell) for cell in columns[name]]
        for name in ("price", "stars", "floor")
    }
    frame.with_columns(pl.Series(name, cells, dtype=pl.Decimal(38, 2)) for name, cells in exact.items()).write_parquet(
        path
    )


def as_narrow_numbers(columns, path):
    typed(columns).with_columns(
        pl.col("price").cast(pl.Float32), pl.col("floor").cast(pl.Float16), pl.col("y").cast(pl.UInt64)
    ).write_parquet(path)


def as_nullable_pandas(columns, path):
    pd.DataFrame(columns).astype({"stars": "Int64", "floor": "Int8", "direct": "boolean"}).to_parquet(path)


def as_dictionaries(columns, path):
    made = typed(columns).to_arrow()
    for name in ("q", "city", "zip"):
        place = made.schema.get_field_index(name)
        made = made.set_column(place, name, made.column(name).cast(pa.string()).dictionary_encode())
    pq.write_table(made, path)


FILES = [as_csv, as_quoted_csv, as_pandas_csv, as_odd_csv, as_parquet, as_text_parquet, as_decimals, as_narrow_numbers]
FILES += [as_nullable_pandas, as_dictionaries]
FRAMES = {
    "polars": typed,
    "pandas": pd.DataFrame,
    "objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "its own types": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "text": lambda columns: pd.DataFrame(columns).astype(object).map(lambda v: None if pd.isna(v) else str(v)),
    "categories": lambda columns: pd.DataFrame(columns).astype({"city": "category", "zip": "category"}),
}


def expected_of(columns):
    frame = typed(columns)
    return memory.read_judged(frame.drop("q", "y"), frame["y"], frame["q"], categorical=SPLIT_SOURCES)


def same_features(found, expected):
    np.testing.assert_array_equal(found, expected)
    categories = ~np.isnan(expected) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(found[categories]), np.signbit(expected[categories]), "missing or unknown")


def same(found, expected):
    assert found.qids == expected.qids
    assert found.schema == expected.schema
    same_features(found.features[:], expected.features)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.offsets, expected.offsets)


@functools.cache
def stage():
    """A LightGBM model that looks at every column."""
    rng = np.random.default_rng(0)
    features = np.column_stack(
        [
            rng.integers(0, len(f.categories) + 1, 400) if f.categories else rng.normal(size=400) * 100
            for f in FITTED.features
        ]
    ).astype(np.float32)
    params = {
        "objective": "regression",
        "num_leaves": 15,
        "min_data_in_leaf": 3,
        "cat_smooth": 1,
        "min_data_per_group": 1,
    }
    data = lightgbm.Dataset(
        lightgbm_input(features, FITTED), rng.normal(size=400), categorical_feature=list(FITTED.categorical)
    )
    model = lightgbm.train(params | {"verbose": -1}, data, 30)
    assert model.feature_importance().all()
    return LightGbmFirstStage(model.model_to_string(), FITTED)


FEW = settings(
    max_examples=scale_examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(frames, "BATCH_ROWS", 3)


@pytest.mark.parametrize("write", FILES)
@given(columns=tables())
@FEW
def test_a_file_means_the_same_in_every_format(tmp_path_factory, write, columns):
    if write is as_pandas_csv:  # it has no other way to write them
        columns = columns | {"stars": [c if c is None else c % 1000 for c in columns["stars"]]}
    path = tmp_path_factory.mktemp("rows") / "rows"
    path = path.with_suffix(".csv" if write.__name__.endswith("csv") else ".parquet")
    write(columns, path)
    expected = expected_of(columns)
    for on_disk in (False, True):
        same(table.read(SPEC, str(path), on_disk=on_disk).dataset, expected)
    rows = pl.concat([batch.rows for batch in batches(path, FITTED, "q").rows])
    lists = lists_of(rows, FITTED, "q")
    assert list(lists.qids) == list(expected.qids)
    found = np.concatenate([block.rows.copy() for block in lists.blocks()])
    same_features(found, expected.with_schema(FITTED).features)
    np.testing.assert_array_equal(stage().score(found), stage().score(expected.with_schema(FITTED).features))


@pytest.mark.parametrize("kind", FRAMES)
@given(columns=tables())
@FEW
def test_a_frame_means_the_same_whatever_its_types(kind, columns):
    if kind in ("pandas", "text", "categories"):  # where whole numbers have a gap, pandas makes fractions of them
        columns = columns | {"stars": [c if c is None else c % 1000 for c in columns["stars"]]}
    frame, expected = FRAMES[kind](columns), expected_of(columns)
    y, qid = (frame[[name]] if kind != "polars" else frame[name] for name in ("y", "q"))
    X = frame.drop(columns=["q", "y"]) if kind != "polars" else frame.drop("q", "y")
    same(memory.read_judged(X, y, qid, categorical=SPLIT_SOURCES), expected)
    asked, _ = memory.read_unjudged(X, qid, FITTED, FITTED.names)
    same_features(asked.features, expected.with_schema(FITTED).features)


@given(columns=tables(), words=st.booleans())
@FEW
def test_a_request_means_the_same(columns, words):
    expected = expected_of(columns)
    for schema in (fit_schema(expected), FITTED):
        cells = (
            columns
            if not words
            else columns
            | {
                name: [None if cell is None else f" {cell}" for cell in columns[name]]
                for name in ("direct", "floor", "zip")
            }
        )
        rows = [{name: cells[name][n] for name in schema.names} for n in range(len(columns["q"]))]
        request = RerankRequest.model_validate({"candidates": [{"features": row} for row in rows]})
        found = to_candidates(request, schema).features
        same_features(found, expected.with_schema(schema).features)
        np.testing.assert_array_equal(
            stage().score(found), stage().score(expected.with_schema(schema).features)
        ) if schema is FITTED else None


TEXTS = (
    st.text(max_size=6)
    | st.sampled_from(sorted(MISSING_WORDS))
    | st.sampled_from(["True", "1.0", "-0.0", "1.10", "01", "TRUE "])
)


@given(st.lists(st.none() | TEXTS | st.builds("{0}{1}{0}".format, st.sampled_from(PADDING), TEXTS), min_size=1))
def test_columns_are_spelled_and_coded_as_single_values_are(values):
    column = pl.Series(values, dtype=pl.String)
    assert names_in(column).to_list() == [spelled(value) for value in values]
    assert names_in(names_in(column)).to_list() == names_in(column).to_list()
    feature = Feature(
        name="c", kind="categorical", categories=tuple(dict.fromkeys(v for v in values[::2] if v is not None))
    )
    assert codes_in(column, feature).tolist() == [feature.code(value) for value in values]


@given(
    st.lists(st.none() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False), min_size=1)
)
def test_numbers_of_text_are_those_that_were_written(values):
    found = numbers_in(pl.Series([None if v is None else repr(v) for v in values], dtype=pl.String))
    assert len(found.wrong) == 0
    assert [None if v is None else float(v) for v in found.values.to_list()] == [
        None if v is None else float(v) for v in values
    ]
    if all(v is None or isinstance(v, int) for v in values):
        assert [None if v is None else int(v) for v in found.values.to_list()] == values
