"""List-relative columns: their values, their names, their schema, and what is refused."""

import json

import numpy as np
import pytest

from listwright.ranking import bundle, relative
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError
from listwright.ranking.features import FLOAT32_MAX, Feature, FeatureSchema
from listwright.ranking.manifest import _own_hash, parse
from listwright.ranking.relative import EPSILON, RelativeColumn, RelativeColumns
from listwright.ranking.stages import MANIFEST
from support.service.bundles import RELATIVE, make_bundle, rows

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="stars", missing_in_training=True),
        Feature(name="carrier", kind="categorical", categories=("A5",)),
    )
)


def column(feature, kind, within=None, **more):
    return RelativeColumn(feature=feature, kind=kind, within=within, **more)


def widened(features, *columns):
    return RelativeColumns(columns, SCHEMA).widened(np.array(features, dtype=np.float32))


def test_values_stand_behind_the_features():
    found = widened([[1, 5, 1], [3, np.nan, 1], [1, 6, 0]], column("price", "z"), column("stars", "rank"))
    root = np.sqrt(0.5)
    assert found[:, :3].tolist()[0] == [1, 5, 1]
    np.testing.assert_allclose(found[:, 3], [-root, 2 * root, -root], rtol=1e-6)
    np.testing.assert_array_equal(found[:, 4], np.array([0, np.nan, 1], dtype=np.float32))


def test_nothing_varies():
    found = widened([[4, 7, 0]] * 3, column("price", "z"), column("price", "rank"), column("stars", "rank"))
    assert found[:, 3:].tolist() == [[0.0, 0.5, 0.5]] * 3
    assert widened([[4, 7, 0]], column("price", "z"), column("price", "rank"))[0, 3:].tolist() == [0.0, 0.5]


CARRIERS = FeatureSchema(
    features=(*SCHEMA.features[:2], Feature(name="carrier", kind="categorical", categories=("A5", "LX", "OS")))
)
"""Four offers of two carriers, one of an unknown one."""
OFFERS = np.array([[90, 3, 1], [80, 5, 2], [120, 4, 1], [70, 4, 0], [90, np.nan, 1]], dtype=np.float32)


def columns_of(*columns):
    return RelativeColumns(columns, CARRIERS).widened(OFFERS)[:, 3:].T


def test_equal_values_are_counted_and_an_unknown_one_is_alone():
    count, share, distinct = columns_of(*(column("carrier", kind) for kind in ("count", "share", "distinct")))
    np.testing.assert_array_equal(count, [3, 1, 3, 1, 3])
    np.testing.assert_array_equal(share, np.float32([0.6, 0.2, 0.6, 0.2, 0.6]))
    np.testing.assert_array_equal(distinct, [2] * 5)


def test_numbers_are_compared_within_a_category():
    rank, above, stars = columns_of(
        column("price", "rank_within", "carrier"),
        column("price", "above_lowest_within", "carrier"),
        column("stars", "rank_within", "carrier"),
    )
    np.testing.assert_array_equal(rank, [0.25, 0.5, 1, 0.5, 0.25])
    np.testing.assert_array_equal(above, [0, 0, 30, 0, 0])
    np.testing.assert_array_equal(stars, [0, 0.5, 1, 0.5, np.nan])


def test_columns_of_categories_are_named_for_people():
    columns = [column("carrier", "count"), column("price", "above_lowest_within", "carrier")]
    assert [one.name for one in columns] == ["carrier (count in list)", "price (above lowest within carrier)"]
    assert columns[1].label == "above lowest within carrier"


def test_a_column_misses_what_one_of_its_features_misses():
    columns = [
        column("carrier", "count"),
        column("stars", "rank_within", "carrier"),
        column("price", "rank_within", "carrier"),
        column("carrier", "distinct"),
    ]
    schema = RelativeColumns(columns, CARRIERS).schema
    assert [feature.missing_in_training for feature in schema.features[3:]] == [False, True, False, False]


@pytest.mark.parametrize(("kind", "within"), [("z", "carrier"), ("count", "carrier"), ("rank_within", None)])
def test_a_column_has_a_group_exactly_where_its_kind_needs_one(kind, within):
    with pytest.raises(ValueError, match="within"):
        column("price", kind, within)


def test_the_widest_difference_is_a_number():
    features = np.array([[-FLOAT32_MAX, 0, 1], [FLOAT32_MAX, 0, 1]], dtype=np.float32)
    columns = RelativeColumns([column("price", "above_lowest_within", "carrier")], CARRIERS)
    assert columns.widened(features)[:, 3].tolist() == [0.0, FLOAT32_MAX]


def test_rounding_noise_is_no_spread():
    """Differences far below the scale of the training rows give a z-score near 0, not near 1."""
    noise = [[1.0, 0, 0], [1.0 + 1e-7, 0, 0]]
    assert np.abs(widened(noise, column("price", "z"))[:, 3]).max() == pytest.approx(1.0)
    scale = 1.2e-7 / EPSILON * 10
    assert np.abs(widened(noise, column("price", "z", scale=scale))[:, 3]).max() < 0.1


def test_all_missing_stays_missing():
    found = widened([[1, np.nan, 0], [2, np.nan, 0]], column("stars", "z"), column("stars", "rank"))
    assert np.isnan(found[:, 3:]).all()


def test_a_widened_schema_names_them():
    quantiles = (-2.0, -2.0, -1.0, 0.0, 1.0, 2.0, 2.0)
    schema = RelativeColumns([column("stars", "z", quantiles=quantiles), column("price", "rank")], SCHEMA).schema
    assert schema.names == ("price", "stars", "carrier", "stars (z in list)", "price (rank in list)")
    assert [feature.missing_in_training for feature in schema.features[3:]] == [True, False]
    assert schema.features[3].quantiles == quantiles


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([column("weight", "z")], "no feature 'weight'"),
        ([column("carrier", "rank")], "'carrier' is categorical"),
        ([column("price", "count")], "'price' is numeric"),
        ([column("price", "rank_within", "stars")], "'stars' is numeric"),
        ([column("price", "rank_within", "line")], "no feature 'line'"),
        ([column("price", "z"), column("price", "z", scale=1.0)], "named twice"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns, said):
    with pytest.raises(ValueError, match=said):
        RelativeColumns(columns, SCHEMA)


def test_a_name_that_is_a_features_is_refused():
    schema = FeatureSchema(features=(Feature(name="a"), Feature(name="a (z in list)")))
    with pytest.raises(ValueError, match="appears twice"):
        RelativeColumns([column("a", "z")], schema)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale": 1e308}, "relative.0.scale"),
        ({"feature": "carrier"}, "is categorical"),
        ({"kind": "rank", "feature": "price"}, "named twice"),
    ],
)
def test_a_manifest_with_columns_that_cannot_be_is_no_bundle(tmp_path, changes, said):
    folder = make_bundle(tmp_path / "shop" / "1", relative=True)
    values = json.loads((folder / MANIFEST).read_text())
    values["relative"][0].update(changes)
    with pytest.raises(BundleError, match=said):
        parse(json.dumps(values | {"sha256": _own_hash(values)}).encode(), folder / MANIFEST)


def test_both_stages_of_a_bundle_see_them(tmp_path):
    reranker = bundle.load(make_bundle(tmp_path / "shop" / "1", relative=True, also="mlp")).reranker
    plain = bundle.load(make_bundle(tmp_path / "shop" / "2")).reranker
    features = rows(np.random.default_rng(3), 20)
    shifted = features.copy()
    shifted[:, 0] = shifted[:, 0] * 2 + 64  # z and rank of the price stay, the price does not
    assert reranker.relative.columns == RELATIVE
    assert plain.relative is None
    for strategy in ("qilcm", "mlp", "first_stage"):
        one, other = (reranker.rerank(CandidateList(x), strategy=strategy) for x in (features, shifted))
        assert one.route.strategy == strategy
        assert not np.array_equal(one.scores, other.scores)


class Twin:
    """What a compiler built, and what it wrote."""

    def __init__(self, wrong):
        self._wrong = wrong

    def write(self, features, sources, out):
        relative.write(features, sources, out)
        out += self._wrong


@pytest.mark.parametrize(
    ("built", "level"), [(None, "WARNING"), (Twin(np.float32(1e-6)), "ERROR"), (Twin(np.float32(0.0)), None)]
)
def test_a_twin_computes_them_only_where_it_is_built_and_agrees_to_the_bit(monkeypatch, caplog, built, level):
    monkeypatch.setattr(relative, "relative_columns", built)
    chosen = relative._fastest.__wrapped__()  # what is kept for this process stays as it is
    assert chosen == (relative.write if level else built.write)
    assert [record.levelname for record in caplog.records] == ([level] if level else [])
