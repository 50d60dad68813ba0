"""Bundles valued on planted logs: the right one wins, whatever the parts, and a log that cannot say is refused."""

import json
import math
from functools import partial

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, RecipeError
from listwright.training.commands import estimate as command
from listwright.training.data.tables.judged import judged_metadata
from listwright.training.recipe.data import PlacePropensity, PropensityFile
from listwright.training.scoring import run as scoring_run
from listwright.training.scoring.run import parts
from listwright.training.scoring.worker import rank_rows
from listwright.training.traffic.estimate import estimate as estimates
from listwright.training.traffic.estimate import estimators
from listwright.training.traffic.estimate.estimate import estimate
from listwright.training.traffic.estimate.text import text
from listwright_lab.synthetic_traffic import Shop, Visits, examination, swapped_rows
from support.service.bundles import CATEGORY, NUMERIC, make_bundle, rows
from support.training.progress import RecordedProgress
from support.training.scored import rank_by_threads

LENGTH, COUNT = 5, 1500
FEATURES = (*NUMERIC, CATEGORY.name)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two bundles of one schema."""
    folder = tmp_path_factory.mktemp("models") / "shop"
    return make_bundle(folder / "1"), make_bundle(folder / "2", seed=8)


@pytest.fixture(scope="module")
def log():
    """Judged rows of a shop in which half of the lists have a swap, and candidates that the second feature sells."""
    rng = np.random.default_rng(0)
    features = rows(rng, COUNT * LENGTH).reshape(COUNT, LENGTH, -1)
    odds = -1.0 + 1.5 * features[..., 1]
    people = Visits(rng.integers(0, COUNT // 2, COUNT), np.sort(rng.integers(0, 5, COUNT)), 1.0 / (1.0 + np.exp(-odds)))
    order = np.argsort(rng.normal(size=odds.shape), axis=1)
    shop = Shop(length=LENGTH, depth=LENGTH)
    made = swapped_rows(shop, people, order, rng)
    candidate = made["candidate_id"].str.slice(1).cast(pl.Int64).to_numpy()
    own = features[np.repeat(np.arange(COUNT), LENGTH), candidate]
    names = ("Z9", *CATEGORY.categories)
    return made.with_columns(
        *(pl.Series(name, own[:, d]).fill_nan(None) for d, name in enumerate(NUMERIC)),
        pl.Series(CATEGORY.name, [names[int(code)] for code in own[:, -1]]),
    )


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Parts of a few hundred lists, ranked by a thread; few trees."""
    rank_by_threads(monkeypatch, 5000)
    monkeypatch.setattr(estimators, "TREES", 10)


@pytest.fixture
def estimated(models, tmp_path):
    """Writes rows and propensities, and estimates the second bundle."""

    def run(frame, *, bundles=models, values=None, covariance=None, prefix="", unshown=True, same=None, **options):
        path = tmp_path / "rows.parquet"
        columns = {
            name: prefix + column for name, column in (("qid", "query_id"), ("label", "label"), ("time", "served_at"))
        }
        frame = frame.rename({name: prefix + name for name in frame.columns if name not in FEATURES})
        frame.write_parquet(path, metadata=judged_metadata(FEATURES, **columns, prefix=prefix, unshown=unshown))
        values = examination(LENGTH, 1.0) if values is None else values
        places = tuple(PlacePropensity(position=k + 1, propensity=p) for k, p in enumerate(values))
        file = PropensityFile(positions=places, log_covariance=covariance, same=same)
        (tmp_path / "p.json").write_text(file.model_dump_json())
        return estimate(bundles, path, tmp_path / "p.json", jobs=1, **options)

    return run


def test_the_logged_ranker_has_its_logged_clicks(estimated, log, monkeypatch):
    """Its value by inverse propensities is that of the lists as they were shown, with the swaps undone."""
    found = estimated(log, estimator="ips")
    plain = log.group_by("query_id").agg(pl.col("swapped").any(), pl.col("label").sum())
    unswapped = plain.filter(~pl.col("swapped"))
    assert found["logged"] == pytest.approx(plain["label"].mean())
    one = log.join(unswapped.select("query_id"), on="query_id", how="semi")
    swap = log.filter(pl.col("swapped").any().over("query_id")).head(LENGTH)
    upper = swap.filter("swapped")["position"].min()
    swap = swap.with_columns(label=(pl.col("position") == upper).cast(pl.Int32))
    monkeypatch.setattr(estimates, "FEWEST_CLICKS", 1)
    again = estimated(pl.concat([one, swap]), estimator="ips")
    ratio = upper / (upper + 1)  # of the propensities: the clicked candidate belongs a place lower
    assert again["control"] == pytest.approx((unswapped["label"].sum() + ratio) / (len(unswapped) + 1), abs=1e-9)
    assert found["check"]["logged"] == pytest.approx(plain.filter(~pl.col("swapped"))["label"].mean())
    assert found["check"]["holds"]


def test_parts_and_jobs_change_nothing(estimated, log, monkeypatch):
    found = estimated(log)
    monkeypatch.setattr(scoring_run, "parts", partial(parts, rows=10**6))
    whole = estimated(log)
    assert found["check"] == whole["check"]
    assert found["control"] == pytest.approx(whole["control"], abs=1e-12)
    assert [one["estimates"]["dr"] for one in found["bundles"]] == [
        pytest.approx(one["estimates"]["dr"], abs=1e-9) for one in whole["bundles"]
    ]
    assert [one["from_place"] for one in found["bundles"]] == [
        pytest.approx(one["from_place"]) for one in whole["bundles"]
    ]
    assert (found["lists"], found["units"]) == (COUNT, log["unit"].n_unique())


def test_a_bundle_beside_itself_differs_by_nothing(estimated, log, models):
    found = estimated(log, bundles=(models[0], models[0]))
    (pair,) = found["pairs"]
    assert (pair["value"], pair["low"], pair["high"]) == (0.0, 0.0, 0.0)
    assert found["bundles"][0]["estimates"] == found["bundles"][1]["estimates"]


def test_unsure_propensities_widen_the_interval(estimated, log):
    sure, unsure = (
        estimated(log, covariance=(np.eye(LENGTH) * variance).tolist())["bundles"][0] for variance in (0.0, 0.04)
    )
    for name in ("low", "high"):
        assert abs(sure["estimates"]["dr"][name] - unsure["estimates"]["dr"][name]) > 0.01
    assert sure["estimates"]["dr"]["value"] == unsure["estimates"]["dr"]["value"]


def test_a_bundle_ranks_as_it_scores(estimated, log, models):
    """The value by inverse propensities of its places in ``listwright score``."""
    found = estimated(log, bundles=models[1:], estimator="ips")
    scored, _ = rank_rows(log, bundle.load(models[1]), "query_id")
    clicks = scored.filter(pl.col("label") > 0)
    value = (clicks["position"] / clicks["rank"]).sum() / COUNT  # p is 1 / place
    assert found["bundles"][0]["value"] == pytest.approx(value)
    change = value - found["control"]
    assert found["bundles"][0]["estimates"]["ips"]["value"] == pytest.approx(change)


def test_the_gain_of_a_bundle_discounts_its_places(estimated, log, models):
    found = estimated(log, bundles=models[1:], estimator="ips", metric="gain")
    scored, _ = rank_rows(log, bundle.load(models[1]), "query_id")
    clicks = scored.filter(pl.col("label") > 0)
    gain = (clicks["position"] / np.log2(clicks["rank"].to_numpy() + 1.0)).sum() / COUNT  # p is 1 / place
    assert found["bundles"][0]["value"] == pytest.approx(gain)


def test_a_prefix_of_the_columns_changes_nothing(estimated, log):
    assert estimated(log, prefix="shop_") == estimated(log)


@pytest.mark.nightly
def test_units_that_return_widen_the_interval(estimated, log):
    """The same clicks of fewer people say less."""
    few = log.with_columns(unit=pl.lit("u") + (pl.col("query_id").rank("dense") % 150).cast(pl.String))
    one = log.with_columns(unit=pl.lit(None, dtype=pl.String))
    assert estimated(few)["units"] == 150
    assert estimated(one)["units"] == COUNT, "a query without a unit is a unit of its own"
    doubled = pl.concat([log, log.with_columns(query_id=pl.lit("again-") + pl.col("query_id"))])
    half = [
        each["high"] - each["low"]
        for each in (estimated(frame)["bundles"][0]["estimates"]["ips"] for frame in (log, doubled))
    ]
    assert half[1] == pytest.approx(half[0], rel=0.01), "the same people with the same clicks once more are no news"


def test_a_wrong_propensity_is_noticed(estimated, log):
    found = estimated(log, values=examination(LENGTH, 3.0))
    assert not found["check"]["holds"]
    assert "does not hold" in text(found)


def test_lists_that_cannot_count_are_left_out(estimated, log):
    query = pl.col("query_id")
    frame = log.with_columns(
        rules=pl.when(query.is_in(["q1", "q2"]))
        .then(pl.lit("exclude pin"))
        .when(query == "q3")
        .then(pl.lit("exclude"))
        .when(query == "q7")
        .then(pl.lit("cutoff")),
        team=pl.when(query == "q4").then(pl.lit("control")),
        label=pl.when((query != "q5") | (pl.col("position") < LENGTH)).then("label"),
        position=pl.when((query != "q5") | (pl.col("position") < LENGTH)).then("position"),
        swapped=pl.when(query == "q5").then(pl.col("position") == LENGTH - 1).otherwise("swapped"),
    )
    found = estimated(frame)
    reasons = {
        "reordered or cut off by rules": 3,
        "interleaved": 1,
        "swapped with a candidate below place 5, the last with a propensity": 1,
    }
    assert found["left_out"] == reasons
    assert found["lists"] == COUNT - 5


def test_parts_without_a_list_that_counts(estimated, log, monkeypatch):
    """The first part was interleaved."""
    monkeypatch.setattr(scoring_run, "parts", partial(parts, rows=100))
    first = log["query_id"].unique(maintain_order=True)[:20]
    found = estimated(log.with_columns(team=pl.when(pl.col("query_id").is_in(first.to_list())).then(pl.lit("control"))))
    assert found["left_out"] == {"interleaved": 20}
    assert found["lists"] == COUNT - 20


def test_lists_of_a_split_a_shadow_and_with_weights_of_goals_count(estimated, log):
    """The logged ranker is the one that served each list, with its weights."""
    number = pl.col("query_id").str.slice(1).cast(pl.Int64)
    frame = log.with_columns(
        arm=pl.when(number < 100).then(pl.lit("challenger")),
        bundle=pl.when(number < 100).then(pl.lit("shop/2")).otherwise(pl.lit("shop/1")),
        experiment=pl.when(number < 300).then(pl.lit("split")).when(number < 500).then(pl.lit("shadow")),
        weights=pl.when(number >= 1400).then(pl.lit('{"margin": 1.0}')),
    )
    found = estimated(frame)
    assert found["lists"] == COUNT
    assert found["served_by"] == {"shop/1": 1300, "shop/2": 100, 'shop/1 {"margin": 1.0}': 100}
    assert "shop/1 1,300" in text(found)


def test_requests_that_two_bundles_ranked_replace_swaps(estimated, log):
    """Where a column says which queries asked the same, the file of propensities names it."""
    number = pl.col("query_id").str.slice(1).cast(pl.Int64)
    plain = log.with_columns(
        swapped=pl.lit(value=False),
        bundle=pl.concat_str(pl.lit("shop/"), number % 2),
        query_text=pl.concat_str(pl.lit("text"), number // 2),
        candidate_id=pl.when(pl.col("position") == LENGTH).then("query_id").otherwise("candidate_id"),
    )
    with pytest.raises(DataError, match="explore"):
        estimated(plain)
    found = estimated(plain, same="query_text")
    assert found["lists"] == COUNT
    assert found["check"] is None
    with pytest.raises(DataError, match="explore"):
        estimated(plain.with_columns(bundle=pl.lit("shop/1")), same="query_text")


def test_candidates_below_the_places_are_bounds(estimated, log):
    found = estimated(log, values=examination(3, 1.0))
    own = found["bundles"][0]
    assert found["places"] == 3
    swapped = log.filter("swapped").group_by("query_id").agg(pl.col("position").min())
    assert list(found["left_out"].values()) == [swapped.filter(pl.col("position") == 3).height]
    assert 0.3 < own["missing"] < 0.5
    low, high = own["bounds"]
    assert low < own["estimates"]["dr"]["value"] < high
    assert own["reach"][0] < low
    assert own["reach"][1] > high
    assert own["verdict"] == "depends"


def test_candidates_that_were_not_shown_are_bounds(estimated, log):
    cut = log.with_columns(
        position=pl.when(pl.col("position") <= 4).then("position"),
        label=pl.when(pl.col("position") <= 4).then("label"),
    ).filter(~(pl.col("swapped") & pl.col("position").is_null()).any().over("query_id"))
    found = estimated(cut, values=examination(4, 1.0))
    assert 0.1 < found["bundles"][0]["missing"] < 0.3


def test_what_a_log_cannot_say_is_refused(estimated, log, monkeypatch):
    with pytest.raises(DataError, match="explore"):
        estimated(log.with_columns(swapped=pl.lit(value=False)))
    twenty = log.filter("swapped", pl.col("label") > 0)["query_id"].unique(maintain_order=True).head(20).to_list()
    with pytest.raises(DataError, match="explore"):
        estimated(log.with_columns(swapped=pl.col("swapped") & pl.col("query_id").is_in(twenty)))
    with pytest.raises(RecipeError, match="--metric gain"):
        estimated(log, estimator="cascade-dr")
    with pytest.raises(DataError, match="price"):
        estimated(log.drop("price"))
    with pytest.raises(DataError, match="--unshown"):
        estimated(log, unshown=False)
    with pytest.raises(DataError, match="3 units"):
        estimated(log.with_columns(unit=pl.lit("u") + (pl.col("query_id").hash() % 3).cast(pl.String)))
    monkeypatch.delattr(estimates, "map_parts")  # refused before minutes of ranking
    with pytest.raises(DataError, match="several clicks"):
        estimated(log, estimator="cascade-dr", metric="gain")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("position", pl.lit(1), "query q5.*each place"),
        ("position", pl.col("position") + 1, "query q5.*each place"),
        ("position", pl.col("position") - 1, "column position.*places from 1"),
        ("position", pl.col("position") + 0.5, "column position.*places from 1"),
        ("position", pl.lit("top"), "judged rows"),
        ("label", pl.lit(math.nan), "column label.*numbers"),
        ("label", pl.lit("click"), "judged rows"),
        ("swapped", pl.lit(value=True), "query q5.*at most two"),
    ],
)
def test_rows_of_another_kind_are_refused(estimated, log, column, value, message):
    changed = pl.when(pl.col("query_id") == "q5").then(value).otherwise(column)
    with pytest.raises(DataError, match=message):
        estimated(log.with_columns(changed.alias(column)))


def test_units_that_are_no_text_are_refused(estimated, log):
    units = pl.Series([b"\xff"] * log.height)
    with pytest.raises(DataError, match="judged rows"):
        estimated(log.with_columns(unit=units))


def test_files_of_other_columns_are_named(estimated, log, models, tmp_path):
    estimated(log)
    (tmp_path / "rows").mkdir()
    for name, frame in (("1", log), ("2", log.with_columns(pl.col("price").cast(pl.Int64)))):
        frame.write_parquet(tmp_path / "rows" / f"{name}.parquet")
    with pytest.raises(DataError, match=r"2\.parquet.*of type Int64 where .*1\.parquet has 'price' of type Float32"):
        estimate(models, tmp_path / "rows", tmp_path / "p.json", jobs=1)


@pytest.mark.parametrize("covariance", [[[1.0]], [[1.0] * LENGTH], np.diag([-1.0] + [0.0] * (LENGTH - 1)).tolist()])
def test_a_covariance_of_other_places_is_refused(estimated, log, covariance):
    with pytest.raises(RecipeError, match="log_covariance"):
        estimated(log, covariance=covariance)


def test_features_that_the_rows_lack_or_do_not_know_are_noted(estimated, log, models, tmp_path):
    bundle_with_default = make_bundle(tmp_path / "defaults" / "1", defaults={"price": 0.5})
    progress = RecordedProgress()
    changed = log.drop("price").with_columns(pl.lit("unheard of").alias(CATEGORY.name))
    estimated(changed, bundles=(bundle_with_default,), progress=progress)
    absent, unknown = progress.said
    assert "price" in absent
    assert "'carrier' has" in unknown


def test_numbers_may_have_the_types_that_other_tools_write(estimated, log):
    expected = estimated(log)
    others = log.with_columns(
        pl.col("position").cast(pl.Float64), label=pl.col("label") > 0, swapped=pl.col("swapped").cast(pl.Int8)
    )
    assert estimated(others)["bundles"] == expected["bundles"]


def test_every_file_of_a_folder_needs_the_candidates_that_were_not_shown(estimated, log, models, tmp_path):
    estimated(log)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows.parquet").rename(tmp_path / "rows" / "1.parquet")
    shown_alone = judged_metadata(FEATURES, qid="query_id", label="label", time="served_at")
    for metadata, message in ((shown_alone, "--unshown"), (None, "metadata of Parquet")):
        log.write_parquet(tmp_path / "rows" / "2.parquet", metadata=metadata)
        with pytest.raises(DataError, match=rf"2\.parquet.*{message}"):
            estimate(models, tmp_path / "rows", tmp_path / "p.json", jobs=1)


def test_the_click_model_has_the_features_of_all_bundles_in_any_order(estimated, log, models, tmp_path):
    bundles = make_bundle(tmp_path / "few" / "1", categorical=False), models[0]
    orders = (bundles, bundles[::-1], bundles[1:])
    found = [
        {each["name"]: each["estimates"]["dm"] for each in estimated(log, bundles=order)["bundles"]} for order in orders
    ]
    assert found[0] == found[1]
    (alone,) = found[2].values()
    assert alone in found[0].values()


def test_lists_of_one_click_have_a_cascade(estimated, log):
    first = log.with_columns(label=pl.when(pl.col("label").cum_sum().over("query_id") <= 1).then("label").otherwise(0))
    found = estimated(first, estimator="cascade-dr", metric="gain")
    assert set(found["bundles"][0]["estimates"]) == {"dr", "ips", "snips", "dm", "cascade-dr"}


def test_the_command_writes_numbers_and_a_page(estimated, log, models, tmp_path, capsys):
    found = estimated(log)
    arguments = [
        *map(str, models),
        "--data",
        str(tmp_path / "rows.parquet"),
        "--propensities",
        str(tmp_path / "p.json"),
    ]
    outputs = ["--out", str(tmp_path / "page.html"), "--json", str(tmp_path / "e.json"), "--jobs", "1"]
    assert command.main([*arguments, *outputs]) == 0
    written = json.loads((tmp_path / "e.json").read_text())
    assert written["bundles"] == found["bundles"]
    assert written["command"].startswith("listwright estimate")
    page = (tmp_path / "page.html").read_text()
    assert all(one["name"] in page for one in found["bundles"])
    assert f"{found['control']:.4f}" in page
    assert all(f"{pair[end]:+.4f}" in page.partition("<pre")[0] for pair in found["pairs"] for end in ("low", "high"))
    assert f"{found['bundles'][0]['value']:.4f}" in capsys.readouterr().out
    assert command.main([*arguments, "--jobs", "0"]) == 1
    assert command.main([*arguments, "--clip", "2"]) == 1
    assert command.main([str(models[0]), *arguments]) == 1
    assert command.main([*arguments, *outputs, "--clip", "0.4"]) == 0
    written = json.loads((tmp_path / "e.json").read_text())
    assert written["clip"] == 0.4
    assert f"{written['bundles'][0]['clip_bias']['value']:+.4f}" in (tmp_path / "page.html").read_text()
