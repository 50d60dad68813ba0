"""Attempts on top of list-relative columns: the pieces that no fit shows to be right."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from listwright.ranking.metrics import ndcg
from listwright.training.data.dataset import Splits, fit_schema
from listwright.training.data.synthetic.planted import generate
from listwright.training.recipe.data import SyntheticData
from listwright_lab.science import patience
from listwright_lab.science.attempts import figures, networks, registry
from listwright_lab.science.attempts.problem import Problem, Scores, by_query, extend, widened
from listwright_lab.science.attempts.stack import choice_weights


def made(queries=60, **changes):
    spec = SyntheticData(queries=queries, min_length=2, max_length=9, numeric=3, **changes)
    return generate(spec, np.random.default_rng(1))


@pytest.fixture(scope="module")
def splits():
    whole, _ = made()
    train, valid, test = (whole.select(range(start, start + 20)) for start in (0, 20, 40))
    return Splits(train, valid, test, "planted").described_by(fit_schema(train))


@pytest.fixture
def problem(tmp_path, splits):
    """One whose data are those of the fixture."""
    found = Problem("context", 1, 0, tmp_path, tmp_path)
    found.__dict__["plain"] = splits
    return found


def test_widened_by_what_compares_a_candidate_with_its_list(splits):
    found, width = widened(splits), len(splits.train.schema)
    names = found.test.schema.names
    assert names[:width] == splits.train.schema.names
    assert names[width : width + 4] == ("n1 (z in list)", "n2 (z in list)", "n3 (z in list)", "n1 (rank in list)")
    assert found.test.schema == found.train.schema != splits.train.schema
    features = found.test.features[found.test.slice(3)].astype(np.float64)
    x, z, rank = features[:, 1], features[:, width + 1], features[:, names.index("n2 (rank in list)")]
    assert z == pytest.approx((x - x.mean()) / x.std(), abs=1e-4)
    assert rank == pytest.approx(np.argsort(np.argsort(x)) / (len(x) - 1), abs=1e-6)


def test_extended_by_the_place_between_the_ends_and_the_gaps_to_them(splits):
    splits.test.features[splits.test.slice(3)][:, 0] = 7.0
    wide = widened(splits)
    found = extend(splits, wide)
    names, rows = found.test.schema.names, found.test.slice(3)
    assert names[: len(wide.test.schema)] == wide.test.schema.names
    x = splits.test.features[rows, 1].astype(np.float64)

    def column(name):
        return found.test.features[rows, names.index(name)]

    assert column("n2 (place in list)") == pytest.approx((x - x.min()) / (x.max() - x.min()), abs=1e-6)
    assert column("n2 (above lowest in list)") == pytest.approx(x - x.min(), abs=1e-5)
    assert column("n2 (below highest in list)") == pytest.approx(x.max() - x, abs=1e-5)
    assert set(column("n1 (place in list)")) == {0.5}
    assert set(column("candidates in list")) == {len(x)}


@pytest.mark.parametrize(
    ("wait", "fewest", "kept", "grown"),
    [(2, 0, 1, 3), (3, 0, 1, 4), (4, 0, 5, 9), (9, 0, 5, 9), (2, 4, 1, 4), (2, 5, 5, 7)],
)
def test_a_short_wait_ends_at_a_small_peak(wait, fewest, kept, grown):
    stops = np.array([0.5, 0.4, 0.3, 0.45, 0.6, 0.5, 0.5, 0.5, 0.5])
    trees, all_trees, ndcg_of_others = patience.stop(np.stack([stops, np.arange(9.0)]), wait, fewest)
    assert (trees, all_trees, ndcg_of_others) == (kept, grown, kept - 1.0)


def test_weights_of_a_stack_are_those_of_the_choices():
    """Labels of a Plackett-Luce choice of one: the sum that was planted is found, and noise gets nothing."""
    rng = np.random.default_rng(0)
    whole, _ = made(queries=3000, levels=2)
    one, two, noise = rng.normal(size=(3, whole.rows))
    labels = np.zeros(whole.rows, dtype=np.int32)
    utility = 2.0 * one + 0.5 * two + rng.gumbel(size=whole.rows)
    for n in range(len(whole)):
        rows = whole.slice(n)
        labels[rows.start + int(np.argmax(utility[rows]))] = 1
    chosen = type(whole)(whole.features, labels, whole.offsets, whole.qids, whole.schema)
    found = choice_weights(chosen, np.column_stack([one, 3.0 * two, noise - 0.3 * one]))
    assert found[:2] == pytest.approx([2.0, 0.5 / 3.0], rel=0.1)
    assert found[2] == pytest.approx(0.0, abs=0.1)
    assert choice_weights(chosen, -one[:, None]).tolist() == [0.0], "no weight is negative"


@pytest.mark.parametrize(("better", "kept"), [(20, 1.0), (0, 0.0), (1, 0.0)])
def test_a_second_stage_is_kept_above_one_standard_error(problem, splits, better, kept):
    """It ranks some training queries perfectly, and the others as the first stage does: the reverse."""
    worst = -splits.train.labels.astype(float)
    second = worst.copy()
    informative = [n for n in range(20) if len(set(splits.train.labels[splits.train.slice(n)])) > 1]
    for n in informative[:better]:
        second[splits.train.slice(n)] *= -1.0
    if better == 1:  # what it gains in one query is within chance
        assert (by_query(splits.train, second) - by_query(splits.train, worst)).mean() > 0
    nothing = np.zeros(splits.valid.rows), np.zeros(splits.test.rows)
    first, other = Scores(worst, *nothing, {}), Scores(second, nothing[0], nothing[1] + 1.0, {})
    found = networks.safe(problem, first, other)
    assert found.facts["kept"] == [kept]
    assert (found.test == kept).all()


def test_results_are_kept_and_not_made_again(problem, splits):
    made_once = Scores(None, np.arange(float(splits.valid.rows)), splits.test.labels.astype(float), {"trees": [3.0]})
    problem.scores("one", lambda: made_once)
    found = problem.scores("one", lambda: pytest.fail("made again"))
    assert found.train is None
    assert found.facts == {"trees": [3.0]}
    assert found.valid.tolist() == made_once.valid.tolist()
    (kept,) = figures._read_runs(problem.work / "context", "one").values()
    assert set(kept[0].tolist()) <= {0.0, 1.0}, "labels rank perfectly"


def kept(work, name, attempt, seeds, values):
    for seed in seeds:
        folder = work / name / f"fold-1-seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{attempt}.npz", ndcg=values, seconds=np.array(1.0))


@pytest.fixture
def no_results(monkeypatch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    (folder / "attempts.json").write_text('{"sets": []}')
    monkeypatch.setattr(figures.machine, "RESULTS", folder)
    return folder / "attempts.json"


def test_attempts_that_are_not_measured_again_keep_their_rows_and_count(tmp_path, no_results):
    rng = np.random.default_rng(0)
    rival, gain = rng.random(40), rng.normal(0.1, 0.2, 40)
    kept(tmp_path, "airline", "relative", range(5), rival)
    kept(tmp_path, "airline", "sum", range(5), rival + gain)
    new = stats.ttest_1samp(gain, 0.0).pvalue
    names = ("plain", "linear", "both", "blocks", "mlp")
    first = [0.001, 0.004, 0.005, 0.3, 0.6]
    corrected = [0.005, 0.016, 0.016, 0.6, 0.6]  # of the first ones, by Holm
    before = [{"attempt": name, "p_holm": p} for name, p in zip(names, corrected, strict=True)]
    no_results.write_text(json.dumps({"sets": [{"set": "airline", "attempts": [{"attempt": "relative"}, *before]}]}))
    found = figures.of_set(tmp_path, "airline")
    rows = {row["attempt"]: row for row in found["attempts"]}
    assert list(rows) == [name for name in registry.ATTEMPTS if name in {*names, "relative", "sum"}]
    exact = dict(zip((*names, "sum"), figures.holm([*first, new]), strict=True))
    assert all(row["p_holm"] >= exact[name] * 0.99 for name, row in rows.items() if name != "relative")
    assert rows["plain"]["p_holm"] == pytest.approx(exact["plain"], rel=0.01), "the smallest is known"
    assert rows["sum"]["p"] == pytest.approx(new, rel=0.01)
    no_results.write_text(json.dumps({"sets": [{"set": "airline", "attempts": found["attempts"]}]}))
    again = figures.of_set(tmp_path, "airline")["attempts"]
    assert again == found["attempts"], "a second time changes nothing"


@pytest.mark.usefixtures("no_results")
def test_an_attempt_without_all_seeds_is_not_shown_and_p_is_corrected_for_those_that_are(tmp_path):
    rng = np.random.default_rng(0)
    rival, gain = rng.random(40), rng.normal(0.1, 0.2, 40)
    kept(tmp_path, "airline", "relative", range(5), rival)
    kept(tmp_path, "airline", "sum", range(5), rival + gain)
    kept(tmp_path, "airline", "xendcg", range(4), rival + gain)
    kept(tmp_path, "airline", "linear", range(5), rival + rng.normal(0.0, 0.2, 40))
    rows = {row["attempt"]: row for row in figures.of_set(tmp_path, "airline")["attempts"]}
    assert set(rows) == {"relative", "sum", "linear"}
    assert rows["sum"]["p_holm"] == pytest.approx(2 * stats.ttest_1samp(gain, 0.0).pvalue, rel=0.01)
    assert "p_holm" not in rows["relative"]


@pytest.mark.usefixtures("no_results")
def test_seeds_of_a_query_are_drawn_together(tmp_path, monkeypatch):
    """Two seeds with the same values are no more certain than one; new queries are."""
    monkeypatch.setattr(figures, "FEWEST_SEEDS", 1)

    def width(name, seeds, folds):
        rng = np.random.default_rng(0)
        for fold in folds:
            values = rng.random((2, 40))
            for seed in seeds:
                folder = tmp_path / f"{name}-{len(seeds)}-{len(folds)}" / name / f"fold-{fold}-seed-{seed}"
                folder.mkdir(parents=True)
                np.savez(folder / "relative.npz", ndcg=values[0], seconds=np.array(1.0))
                np.savez(folder / "sum.npz", ndcg=values[1], seconds=np.array(2.0))
        found = figures.of_set(tmp_path / f"{name}-{len(seeds)}-{len(folds)}", name)
        row = {row["attempt"]: row for row in found["attempts"]}["sum"]
        assert (row["seeds"], row["fits"]) == (len(seeds), len(seeds) * len(folds))
        return found["test_queries"], row["gain"][2] - row["gain"][1]

    (queries, one), (again, two), (more, four) = (
        width("airline", seeds, folds) for seeds, folds in (([0], [1]), ([0, 1], [1]), ([0], [1, 2, 3, 4]))
    )
    assert (queries, again, more) == (40, 40, 160)
    assert two == pytest.approx(one)
    assert four < 0.7 * one
    planted, own = width("context", [0, 1], [1])
    assert planted == 80
    assert own < 0.9 * one


@pytest.mark.parametrize("name", networks.OBJECTIVES)
def test_objectives_pull_towards_the_labels_and_ignore_padding(name):
    objective = networks.OBJECTIVES[name]
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 6, generator=rng), torch.randint(0, 3, (4, 6), generator=rng)
    labels[0] = 0
    mask = torch.ones(4, 6, dtype=torch.bool)
    assert objective(1.5 * labels.float(), labels, mask) < objective(logits, labels, mask)
    padded = torch.cat([logits, torch.full((4, 3), 7.0)], dim=1)
    more_labels = torch.cat([labels, torch.full((4, 3), 2)], dim=1)
    more_mask = torch.cat([mask, torch.zeros(4, 3, dtype=torch.bool)], dim=1).requires_grad_(False)
    padded.requires_grad_()
    value = objective(padded, more_labels, more_mask)
    assert value.item() == pytest.approx(objective(logits, labels, mask).item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(value, padded)
    assert torch.isfinite(gradient).all()
    assert gradient[1:, :6].abs().sum() > 0
    assert (gradient[:, 6:] == 0).all()


def test_neural_ndcg_of_scores_that_are_far_apart_is_ndcg():
    rng = np.random.default_rng(0)
    scores, labels = 100.0 * rng.permutation(14), rng.integers(0, 4, 14)
    found = networks.neural_ndcg(
        torch.from_numpy(scores)[None], torch.from_numpy(labels)[None], torch.ones(1, 14, dtype=torch.bool)
    )
    assert found.item() == pytest.approx(1.0 - ndcg(scores, labels, cutoff=10), abs=1e-6)


def test_each_attempt_stands_behind_what_it_needs():
    names = list(registry.ATTEMPTS)
    for place, attempt in enumerate(registry.ATTEMPTS.values()):
        assert set(attempt.needs) <= set(names[:place])
