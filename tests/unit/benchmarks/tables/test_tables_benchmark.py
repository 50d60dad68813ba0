"""The benchmark of public tables: builders, resumed runs, paired comparisons, and the regret of rules for columns."""

import gzip
import json
import zipfile

import numpy as np
import polars as pl
import pytest

from benchmarks.tables import columns, comparison, context, entrants, predictions
from benchmarks.tables.__main__ import main
from benchmarks.tables.columns import Gain, gain_of, shrink
from benchmarks.tables.runs import read_split
from listwright.training.data.tables.public import panel
from listwright.training.first_stage.relative import candidates, widened_part


def write_table(file, seed, lists=60, length=5):
    """Choices of the cheapest, whose prices have a level of each list."""
    rng = np.random.default_rng(seed)
    level, offers = rng.normal(0.0, 10.0, (lists, 1)), rng.normal(size=(lists, length))
    label = (offers == offers.min(axis=1, keepdims=True)).astype(int)
    price, qid = (level + offers).ravel(), np.repeat(np.arange(lists), length)
    noise = rng.normal(size=lists * length)
    pl.DataFrame({"qid": qid, "price": price, "noise": noise, "label": label.ravel()}).write_parquet(file)


@pytest.fixture
def folder(tmp_path):
    for seed, name in enumerate(("car", "tuna")):
        write_table(tmp_path / f"{name}.parquet", seed)
    return tmp_path


def test_a_run_pairs_entrants_on_the_same_queries_and_goes_on_where_it_ended(folder, capsys):
    words = ["run", str(folder), "--results", str(folder), "--splits", "1,2"]
    main([*words, "--entrants", "lambdarank", "--only", "car"])
    capsys.readouterr()
    main([*words, "--entrants", "lambdarank,lambdarank + relative"])
    lines = capsys.readouterr().out.splitlines()[:-1]
    assert lines == [
        *("car 1 lambdarank + relative", "tuna 1 lambdarank", "tuna 1 lambdarank + relative"),
        *("car 2 lambdarank + relative", "tuna 2 lambdarank", "tuna 2 lambdarank + relative"),
    ]
    found = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
    for row in found["tables"]:
        assert (row["splits"], row["test_queries"]) == ([1, 2], 24)
        plain, relative, picked = (
            row["entrants"][name] for name in ("lambdarank", "lambdarank + relative", "afternoon")
        )
        assert relative["ndcg@10"] > plain["ndcg@10"] + 0.1
        assert picked["picks"] == ["lambdarank + relative"] * 2
    assert "all" not in found


def row(table, split, entrant, values, **more):
    return {"table": table, "split": split, "entrant": entrant, "values": values, "wall_s": 2.0, "cpu_s": 1.0, **more}


def test_a_default_is_compared_with_the_pick_of_each_splits_validation_queries(tmp_path):
    rows = [
        row("car", 1, "lambdarank", [0.5, 0.7], valid=0.9),
        row("car", 1, "xendcg", [0.1, 0.1], valid=0.8),
        row("car", 1, "default", [0.6, 0.8], ships="qilcm"),
        row("car", 2, "lambdarank", [0.1, 0.1], valid=0.2),
        row("car", 2, "xendcg", [0.3, 0.9], valid=0.3),
        row("car", 2, "default", [0.4, 1.0], ships="LightGBM + relative"),
        row("car", 3, "default", [0.0, 0.0], ships="LightGBM"),
    ]
    found = comparison.compare(rows)
    (car,) = found["tables"]
    assert (car["splits"], car["test_queries"], car["ships"]) == ([1, 2], 4, ["qilcm", "LightGBM + relative"])
    assert car["entrants"]["afternoon"] == {"ndcg@10": 0.6, "picks": ["lambdarank", "xendcg"]}
    assert car["default_over_afternoon"] == [0.1, 0.1, 0.1]
    assert car["default_over_lambdarank"][0] == 0.35
    assert found["all"]["mean_gain"] == 0.1
    assert (found["all"]["shown_better"], found["all"]["shown_worse"]) == (1, 0)
    assert found["all"]["mean_regret"] == {"lambdarank": 0.35, "xendcg": 0.35, "afternoon": 0.1, "default": 0.0}
    assert found["all"]["mean_rank"] == {"lambdarank": 3.5, "xendcg": 3.5, "afternoon": 2.0, "default": 1.0}
    assert comparison.draw(found, tmp_path / "tables.svg").read_text(encoding="utf-8").count("car") >= 1


def seen(table, split, mean, test, error=0.01):
    gain = {"mean": mean, "low": mean - 2 * error, "high": mean + 2 * error, "error": error, "n": 1000}
    return {"table": table, "split": split, "gains": dict.fromkeys(columns.VIEWS, gain), "test": gain | {"mean": test}}


def test_regret_is_what_a_rule_loses_on_the_test_queries():
    cars = [seen("car", 1, 0.001, 0.02), seen("car", 2, 0.001, -0.01)]
    rows = [*cars, seen("tuna", 1, 0.03, 0.04), seen("tuna", 2, -0.001, -0.02)]
    found = {one["rule"]: one for one in columns.judge(rows) if one["view"] == "validation"}
    regrets = {rule: (one["taken"], one["mean_regret"], one["worst_loss"]) for rule, one in found.items()}
    assert regrets["never"] == (0, 0.015, 0.04)
    assert regrets["always"] == (4, 0.0075, 0.02)
    assert regrets["mean > 0"] == (3, 0.0025, 0.01)
    assert regrets[columns.BEFORE] == regrets["mean > one standard error"] == (1, 0.005, 0.02)
    assert (found["mean > 0"]["worst_at"], found["mean > 0"]["taken_and_harmful"]) == ("car, split 2", 1)
    assert found["mean > 0"]["over_before"][0] == 0.0025


def test_an_unsure_gain_is_shrunk_to_those_of_other_tables():
    def of(mean, error):
        return Gain(mean, mean - error, mean + error, error, 100)

    others = [of(0.01, 0.001), of(0.03, 0.001)]
    assert shrink(of(-0.02, 0.0), others).shrunk == pytest.approx(-0.02)
    assert shrink(of(-0.02, 1.0), others).shrunk == pytest.approx(0.02, abs=1e-4)
    alike = [of(0.02, 0.1), of(0.02, 0.1)]
    assert shrink(of(-0.02, 0.1), alike).shrunk == pytest.approx(0.02)


def test_columns_that_reveal_the_level_of_a_list_gain_on_every_view(folder, tmp_path):
    main(["columns", str(folder), "--results", str(tmp_path), "--splits", "1", "--only", "car"])
    found = json.loads((tmp_path / "columns.json").read_text(encoding="utf-8"))
    (gains,) = found["gains"]
    assert (gains["table"], gains["split"]) == ("car", 1)
    assert min(gains[name] for name in ("test", *columns.VIEWS)) > 0.1


def test_gains_have_an_interval_and_an_error():
    gain = gain_of(np.array([0.0, 0.1] * 50))
    assert (gain.mean, gain.n) == (pytest.approx(0.05), 100)
    assert gain.error == pytest.approx(0.005, rel=0.01)
    assert 0.038 < gain.low < 0.05 < gain.high < 0.062


def test_loyalty_of_a_household_decays_and_grows_with_purchases():
    wide = pl.DataFrame(
        {"id": [1, 2, 1, 1], "price.a": [1.0, 2.0, 3.0, 4.0], "price.b": [5.0] * 4, "choice": ["a", "b", "a", "b"]}
    )
    found = panel(wide, ["a", "b"], {"price": "price.{}"}, household="id", choice="choice").sort("qid", "brand")
    assert found["label"].to_list() == [1, 0, 0, 1, 1, 0, 0, 1]
    assert found["price"].to_list() == [1.0, 5.0, 2.0, 5.0, 3.0, 5.0, 4.0, 5.0]
    assert found["loyalty"].to_list() == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.36, 0.0])


def test_tables_are_built_of_what_can_be_had(tmp_path, capsys):
    (tmp_path / "packages").mkdir()
    csv = "casenum,altnum,chose,cost\n2,1,1,3\n2,2,0,4\n1,1,0,5\n1,2,1,6\n1,3,0,7\n"
    with zipfile.ZipFile(tmp_path / "packages" / "larch-6.0.46-py3-none-any.whl", "w") as wheel:
        wheel.writestr("larch/data_warehouse/MTCwork.csv.gz", gzip.compress(csv.encode()))
    missing = tmp_path / "nowhere"
    main(["build", str(tmp_path), "--only", "mq2008,mtc,margarine", "--letor", str(missing), "--bayesm", str(missing)])
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["mq2008 is skipped", "mtc", "margarine is skipped"]
    assert all(str(missing) in said[n] for n in (0, 2))
    rows = pl.read_parquet(tmp_path / "mtc.parquet")
    assert rows["qid"].to_list() == [1, 1, 1, 2, 2]
    assert sorted(rows.select("qid", "altnum", "label", "cost").rows()) == [
        *((1, 1, 0, 5), (1, 2, 1, 6), (1, 3, 0, 7)),
        *((2, 1, 1, 3), (2, 2, 0, 4)),
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["xgboost", "catboost", "logit", "mlp"])
def test_an_entrant_ranks_what_one_feature_says(folder, name):
    pytest.importorskip(name) if name in ("xgboost", "catboost") else None
    splits = read_split(folder / "car.parquet", 1)
    for part in (splits.train, splits.valid, splits.test):
        part.labels[:] = (part.features[:, 1] > 0.3).astype(int)
    rank = entrants.RANKERS[name](splits.train, splits.valid)
    assert np.corrcoef(rank(splits.test), splits.test.features[:, 1])[0, 1] > 0.6


def test_gains_of_networks_are_paired_and_corrected_by_holm():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    values = {name: base.tolist() for name in (context.FIRST, *context.specs())}
    values["qilcm"] = (base + 0.05 + rng.normal(0, 0.01, 200)).tolist()
    seconds = dict.fromkeys(context.specs(), 1.0)
    found = context.compare(
        [{"table": "car", "split": 1, "entrant": context.PARTS[0], "values": values, "cpu_s": seconds}]
    )
    (car,) = found["tables"]
    gains = {(one["ranker"], one["over"]): one for one in car["gains"]}
    shown = gains["qilcm", context.FIRST]
    assert 0.045 < shown["gain"][1] < 0.05 < shown["gain"][2] < 0.055
    assert shown["p"] <= shown["p_holm"] < 1e-6
    nothing = gains["mlp", context.FIRST]
    assert (nothing["gain"], nothing["p"], nothing["p_holm"]) == ([0.0, 0.0, 0.0], 1.0, 1.0)


def test_predictions_are_judged_by_the_gains_on_test_queries():
    shown, none = {"verdict": "gain"}, {"verdict": "no difference shown"}
    of = {
        "car": ({"uneven": 1.0, "between": 0.2, "relative_columns": shown}, 0.03),
        "tuna": ({"uneven": 0.0, "between": 0.1, "relative_columns": shown}, 0.02),
        "airline": ({"uneven": None, "between": 0.6, "relative_columns": none}, 0.001),
    }
    rows = {(name, 1, "predictions"): row | {"advice": "unsure", "second_stage": none} for name, (row, _) in of.items()}
    measured = [
        {
            "table": name,
            "test": {"mean": mean + sign * 0.005, "error": 0.004},
            "steps": {"test": {"numbers": 0.5, "all": 0.52 if name == "car" else 0.501}},
        }
        for name, (_, mean) in of.items()
        for sign in (-1, 1)
    ]
    found = predictions.judge(rows, measured)
    assert {one["table"]: (one["by_features"], one["by_rankers"], one["gains"]) for one in found["tables"]} == {
        "airline": (True, False, False),
        "car": (True, True, True),
        "tuna": (False, True, True),
    }
    assert (found["right"], found["of"]) == ({"by_features": 1, "by_rankers": 3, "by_uneven_counts": 3}, 3)
    car = next(one for one in found["tables"] if one["table"] == "car")
    assert car["test"] == pytest.approx([0.03, 0.03 - 1.96 * 0.004 / 2**0.5, 0.03 + 1.96 * 0.004 / 2**0.5], abs=1e-4)


def write_composed(file, lists=200):
    """Choices of the kind that most candidates of a list have; a feature of each list that nothing tells."""
    rng = np.random.default_rng(0)
    rows = []
    for qid in range(lists):
        most, *others = rng.permutation(list("abcd"))
        kinds = [most] * 3 + others
        chosen = rng.integers(3)
        rows += [(qid, qid // 4, kind, qid % 2, rng.normal(), int(n == chosen)) for n, kind in enumerate(kinds)]
    names = ["qid", "person", "kind", "noon", "price", "label"]
    pl.DataFrame(rows, schema=names, orient="row").write_parquet(file)


def test_the_composition_of_a_list_pays_and_that_of_another_list_does_not(tmp_path):
    write_composed(tmp_path / "car.parquet")
    main(["context", str(tmp_path), "--results", str(tmp_path), "--splits", "1,2", "--parts", "5"])
    (car,) = json.loads((tmp_path / "context.json").read_text(encoding="utf-8"))["tables"]
    gains = {one["ranker"]: one["gain"] for one in car["gains"]}
    assert gains[context.COUNTS][1] > 0.05
    assert gains[context.SHUFFLED][1] < 0.0
    assert 0.35 < car["auc"]["noon"] < 0.65


def test_counts_of_a_list_are_the_products_columns(tmp_path):
    write_composed(tmp_path / "car.parquet")
    data = read_split(tmp_path / "car.parquet", 1).train
    counts = candidates(data.schema, ("count",))
    expected, own = widened_part(data, counts), context.with_counts(data, counts, None)
    np.testing.assert_array_equal(own.features, expected.features)
    other = context.with_counts(data, counts, np.random.default_rng(0))
    assert sorted(other.features[:, -1]) != sorted(own.features[:, -1])


def test_no_person_is_in_two_parts_where_persons_are_apart(tmp_path):
    write_composed(tmp_path / "car.parquet")
    splits = read_split(tmp_path / "car.parquet", 2, persons_apart=True)
    parts = [{int(qid) // 4 for qid in part.qids} for part in (splits.train, splits.valid, splits.test)]
    assert [len(persons) for persons in parts] == [30, 10, 10]
    assert len(set().union(*parts)) == 50
    assert "person" not in splits.train.schema.names


def test_ways_of_taking_columns_lose_what_the_best_of_three_has():
    def seen_row(table, seen, test):
        names = ("plain", "numbers", "all")
        return {
            "table": table,
            "steps": {"seen": dict(zip(names, seen, strict=True)), "test": dict(zip(names, test, strict=True))},
        }

    rows = [seen_row("car", (0.5, 0.4, 0.6), (0.5, 0.4, 0.7)), seen_row("tuna", (0.5, 0.6, 0.55), (0.5, 0.7, 0.6))]
    found = {row["way"]: row for row in columns.judge_steps(rows)}
    assert found["no columns"]["tables"] == {"car": 0.2, "tuna": 0.2}
    assert found["numbers"]["tables"] == {"car": 0.2, "tuna": 0.0}
    assert found["all at once"]["tables"] == {"car": 0.0, "tuna": 0.1}
    assert found["numbers, then categories"]["mean_regret"] == found["the best of the three"]["mean_regret"] == 0.0
    assert found["always all"]["mean_regret"] == 0.05
