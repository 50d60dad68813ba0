"""A bundle as a model of MLflow: what it predicts is what the service answers."""

import numpy as np
import pandas as pd
import pytest

from listwright.ranking.errors import DataError, SchemaMismatchError, UnknownStrategyError
from listwright.training.pyfunc import BundleModel
from support.service.bundles import CATEGORY, MISSING, NUMERIC
from support.training.scored import LENGTHS, answers, lists

QUERY = {"qid": "query"}


@pytest.fixture
def model(folder):
    return BundleModel(folder)


def pandas_of(frame):
    return pd.DataFrame(frame.to_dict(as_series=False), index=[f"row {n}" for n in range(frame.height)])


def predicted(model, frame, params=None):
    found = model.predict(frame, params)
    found["score"] = found["score"].astype(object).where(found["score"].notna(), None)
    return list(found[["score", "rank", "first_stage_score", "strategy"]].itertuples(index=False, name=None))


def test_lists_are_ranked_as_the_service_ranks_them_to_the_bit(model, folder):
    frame = lists(LENGTHS)
    assert predicted(model, pandas_of(frame), QUERY) == list(answers(folder, frame))


def test_rows_of_a_list_may_stand_anywhere_and_keep_their_index(model):
    frame = pandas_of(lists(LENGTHS))
    mixed = frame.iloc[np.argsort(frame.groupby("query").cumcount(), kind="stable")]
    assert list(mixed["query"][:5]) == ["q0", "q1", "q2", "q3", "q4"]
    pd.testing.assert_frame_equal(model.predict(mixed, QUERY).loc[frame.index], model.predict(frame, QUERY))


def test_without_query_ids_all_rows_are_one_list_with_a_warning(model, folder):
    frame = lists((9,))
    with pytest.warns(UserWarning, match="no column 'qid' of query ids: all 9 rows are one list"):
        assert predicted(model, pandas_of(frame)) == list(answers(folder, frame))
    named = pandas_of(frame).rename(columns={"query": "qid"})
    assert predicted(model, named) == list(answers(folder, frame))


def test_a_column_of_query_ids_that_is_named_must_be_there(model):
    with pytest.raises(SchemaMismatchError, match=r"no column 'nosuch' of query ids: the frame has .*query"):
        model.predict(pandas_of(lists(LENGTHS)), {"qid": "nosuch"})


def test_what_makes_a_frame_is_ranked_as_the_frame(model):
    frame = pandas_of(lists(LENGTHS)).reset_index(drop=True)
    wanted = model.predict(frame, QUERY)
    columns = {name: frame[name].to_numpy() for name in frame}
    for data in (frame.to_dict("records"), frame.to_dict("list"), columns, dict(frame.items())):
        pd.testing.assert_frame_equal(model.predict(data, QUERY), wanted)
    names = model._bundle.manifest.feature_schema.names
    one = pandas_of(lists((9,))).reset_index(drop=True)
    with pytest.warns(UserWarning, match="one list"):
        array = model.predict(one[list(names)].to_numpy(dtype=object))
    pd.testing.assert_frame_equal(array, model.predict(one, QUERY))
    record = frame.to_dict("records")[0] | {"tags": ["a", "b"]}
    assert model.predict(record, QUERY)["rank"].tolist() == [1]
    for data in (np.zeros((2, len(names) + 1)), np.zeros(len(names)), frame["price"], "text", 1.0, None, [1.0]):
        with pytest.raises(TypeError, match=r"records, a record, arrays by name or an array of \d+ columns; found"):
            model.predict(data)


def test_numbers_of_any_type_count_the_same(model):
    frame = pandas_of(lists((9,))).rename(columns={"query": "qid"})
    frame[MISSING] = [np.nan, *range(8)]
    whole, names = frame[MISSING].astype("Int64"), pd.Categorical(frame[CATEGORY.name])
    other = frame.assign(**{MISSING: whole, CATEGORY.name: names})
    pd.testing.assert_frame_equal(model.predict(other), model.predict(frame))


def test_bytes_in_utf8_are_text(model):
    frame = pandas_of(lists((9,))).rename(columns={"query": "qid"})
    encoded = [None if name is None else name.encode() for name in frame[CATEGORY.name]]
    other = frame.assign(**{CATEGORY.name: encoded})
    pd.testing.assert_frame_equal(model.predict(other), model.predict(frame))


def test_a_feature_with_a_default_may_be_absent(model):
    frame = pandas_of(lists((9,))).rename(columns={"query": "qid"})
    pd.testing.assert_frame_equal(model.predict(frame.drop(columns="price")), model.predict(frame.assign(price=0.5)))


def test_a_strategy_is_taken_as_in_a_request(model):
    frame = pandas_of(lists((9,))).rename(columns={"query": "qid"})
    assert set(model.predict(frame, {"strategy": "first_stage"})["strategy"]) == {"first_stage"}
    with pytest.raises(UnknownStrategyError):
        model.predict(frame, {"strategy": "nonesuch"})


def test_what_cannot_be_ranked_is_refused(model):
    frame = pandas_of(lists(LENGTHS))
    needed = next(name for name in NUMERIC if name not in (MISSING, "price"))
    with pytest.raises(SchemaMismatchError, match=needed):
        model.predict(frame.drop(columns=needed), QUERY)
    with pytest.raises(SchemaMismatchError):
        model.predict(frame[["query"]], QUERY)
    for name in ("price", "query"):
        with pytest.raises(DataError, match=f"column {name}"):
            model.predict(pd.concat([frame, frame[[name]]], axis=1), QUERY)
    twice = frame.assign(other=1, again=1).rename(columns={"again": "other"})
    pd.testing.assert_frame_equal(model.predict(twice, QUERY), model.predict(frame, QUERY))
    with pytest.raises(DataError, match="row 3"):
        model.predict(frame.assign(query=[*frame["query"][:2], None, *frame["query"][3:]]), QUERY)
    with pytest.raises(DataError, match="no rows"):
        model.predict(frame[:0])
