"""The fit as a whole: its optimum against one found otherwise, its starts, its memory and the graph that leaves it."""

import dataclasses

import numpy as np
import onnxruntime
import pytest
import torch
from scipy.optimize import approx_fprime, minimize

from listwright.ranking.errors import DataError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.export.second_stages import to_onnx
from listwright.training.losses.exact_plackett_luce import log_likelihood
from listwright.training.recipe.config import Srm as SrmSpec
from listwright.training.specialists.rankers import Standardise
from listwright.training.specialists.srm import TOP_FEATURES, fit_srm
from support.training.progress import RecordedTask

SCHEMA = FeatureSchema(
    features=(
        Feature(name="plain"),
        Feature(name="holey", missing_in_training=True),
        Feature(name="kind", kind="categorical", categories=("a", "b", "c")),
        Feature(name="same"),
        Feature(name="noise"),
    )
)
FAST = {"restarts": 1, "short_run": 2, "max_iterations": 4, "sigma": 1.0}


def dataset(queries=24, length=6, seed=0):
    """Two kinds of queries: one prefers high ``plain``, the other low."""
    rng = np.random.default_rng(seed)
    rows = queries * length
    sign = np.repeat(np.where(np.arange(queries) % 2, 1.0, -1.0), length)
    plain = rng.normal(size=rows)
    holey = np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows))
    kind = rng.integers(0, 4, rows)
    utility = 2.0 * sign * plain + (kind == 1) + 0.5 * np.nan_to_num(holey) + rng.gumbel(size=rows) / 2
    ranks = utility.reshape(queries, length).argsort(axis=1).argsort(axis=1)
    features = np.column_stack([plain, holey, kind, np.full(rows, 3.0), rng.normal(size=rows)]).astype(np.float32)
    qids = tuple(f"q{n}" for n in range(queries))
    labels = np.maximum(ranks - 3, 0).astype(np.int32).ravel()
    return Dataset(features, labels, np.arange(queries + 1) * length, qids, SCHEMA)


def fit(train=None, *, scores=None, seed=0, more=None, **options):
    return fit_srm(
        SrmSpec(**{**FAST, **options}), dataset() if train is None else train, scores, seed=seed, **(more or {})
    )


def plain_listwise(train, sigma):
    """``w -> sum log P(Omega_n | w) - |w|^2 / 2 sigma^2`` of one ranker, without any of EM's code."""
    x = Standardise(train.schema, train.features, "none")(torch.from_numpy(train.features)).double()
    x, labels = x.reshape(len(train), -1, x.shape[1]), torch.from_numpy(train.labels).reshape(len(train), -1)

    def value(w):
        w = torch.as_tensor(w).requires_grad_()
        found = log_likelihood(x @ w, labels, nodes=64).sum() - w.square().sum() / (2 * sigma**2)
        found.backward()
        return found.item(), w.grad.numpy()

    return x.shape[2], value


def test_one_specialist_is_the_plain_listwise_ranker():
    train = dataset()
    width, value = plain_listwise(train, 0.5)
    w0 = np.random.default_rng(0).normal(size=width)
    slope = approx_fprime(w0, lambda w: value(w)[0], 1e-6)
    assert value(w0)[1] == pytest.approx(slope, abs=1e-3)
    best = minimize(lambda w: tuple(-v for v in value(w)), np.zeros(width), jac=True, options={"gtol": 1e-8})
    found = fit(train, specialists=1, sigma=0.5, max_iterations=20, alpha=1.5)
    assert found.weights.tolist() == [1.0]
    assert found.steps[-1].objective == pytest.approx(-best.fun, rel=2e-6)
    assert found.rankers[0].w.numpy() == pytest.approx(best.x, abs=5e-3)
    assert len(found.starts) == 1, "there is nothing to choose from"
    assert found.steps[-1].entropy == 0.0


def test_gradient_of_the_m_step_is_that_of_its_objective():
    """Eq. (13) against finite differences of eq. (12), with the responsibilities as weights."""
    from listwright.training.specialists.lists import PaddedLists
    from listwright.training.specialists.rankers import LinearRanker

    rng = np.random.default_rng(0)
    x, labels = torch.as_tensor(rng.normal(size=(20, 4))), torch.as_tensor(rng.integers(0, 3, 20)).double()
    lists, shares = PaddedLists.of(x, labels, torch.tensor([5, 7, 8])), torch.tensor([0.2, 0.0, 0.9]).double()
    ranker, w0 = LinearRanker(4, 0.3), rng.normal(size=4)
    gradient = ranker._value(torch.as_tensor(w0), lists, shares)[1]
    slope = approx_fprime(w0, lambda w: ranker._value(torch.as_tensor(w), lists, shares)[0], 1e-6)
    assert gradient.numpy() == pytest.approx(slope, abs=1e-3)


def test_two_kinds_of_queries_become_two_specialists():
    found = fit(specialists=2, max_iterations=20)
    assert found.steps[-1].objective > fit(specialists=1, max_iterations=20).steps[-1].objective + 20
    kinds = found.shares.argmax(axis=1)
    assert ((kinds == kinds[1]) == (found.informative % 2 == 1)).mean() > 0.9
    assert found.rankers[kinds[1]].w[0] > 0.5
    assert found.rankers[kinds[0]].w[0] < -0.5


@pytest.mark.nightly
def test_the_best_start_goes_on():
    found = fit(dataset(queries=12), specialists=3, restarts=4, max_iterations=3)
    assert len(found.starts) == 4
    assert found.steps[1].objective == max(found.starts)
    assert len(found.steps) == 3
    assert len(set(found.starts)) > 2, "starts differ"


@pytest.mark.nightly
@pytest.mark.parametrize("specialists", [1, 2, 5, 10])
def test_every_number_of_specialists(specialists):
    found = fit(specialists=specialists, sigma=0.1)
    assert found.shares.shape == (24, specialists)
    assert found.shares.sum(axis=1) == pytest.approx(1.0)
    assert found.weights.sum() == pytest.approx(1.0)
    assert sum(specialist.queries for specialist in found.describe()) == 24
    with torch.no_grad():
        assert found.module(torch.from_numpy(dataset().features)).shape == (144, specialists)


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"m_step": "adam"}, {"hidden": (8,)}], ids=["adam", "mlp"])
def test_adam_raises_the_likelihood(options):
    found = fit(specialists=2, learning_rate=0.05, batch_size=8, epochs=5, max_iterations=6, restarts=1, **options)
    objectives = [step.objective for step in found.steps]
    assert objectives[-1] > objectives[0] + 5
    assert found.describe()[0].top_features == (), "a network has no weight of a feature"


@pytest.mark.nightly
def test_adam_arrives_where_lbfgs_does():
    train = dataset()
    exact = fit(train, specialists=1, max_iterations=20)
    steps = {"learning_rate": 0.02, "batch_size": 24, "epochs": 100}
    by_adam = fit(train, specialists=1, m_step="adam", max_iterations=5, **steps)
    assert by_adam.steps[-1].objective == pytest.approx(exact.steps[-1].objective, abs=0.01)
    w = by_adam.rankers[0].network[0].weight.detach().numpy()[0]
    assert w == pytest.approx(exact.rankers[0].w.numpy(), abs=0.02)


def test_an_mlp_learns_what_no_linear_ranker_can():
    """The best candidate is the one in the middle."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40 * 8, 5)).astype(np.float32)
    middle = np.abs(features[:, 0]).reshape(40, 8).argmin(axis=1)
    labels = np.zeros((40, 8), dtype=np.int32)
    labels[np.arange(40), middle] = 1
    schema = FeatureSchema(features=tuple(Feature(name=f"n{d}") for d in range(5)))
    train = Dataset(features, labels.ravel(), np.arange(41) * 8, tuple(map(str, range(40))), schema)
    steps = {"learning_rate": 0.03, "batch_size": 40, "epochs": 20, "max_iterations": 6, "specialists": 1}
    linear = fit(train, specialists=1, sigma=3.0)
    mlp = fit(train, hidden=(8,), sigma=3.0, **steps)
    chance = 40 * np.log(1 / 8)
    assert linear.steps[-1].objective < chance + 10
    assert mlp.steps[-1].objective > chance + 40


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "after"),
    [({}, 1), ({}, 3), ({}, 5), ({"m_step": "adam"}, 3), ({"hidden": (4,)}, 5), ({"top": 3}, 4)],
)
def test_an_interrupted_fit_goes_on_to_the_same_end(options, after, tmp_path):
    """Interrupted in the first start, in the second, and when the best goes on."""
    options = {"specialists": 3, "restarts": 2, "batch_size": 8, "epochs": 1, **options}
    train, told, rest = dataset(queries=14, length=5), RecordedTask(interrupt_at=after), RecordedTask()
    whole = fit(train, **options)

    memory = {"checkpoint": tmp_path / "em.pt"}
    with pytest.raises(KeyboardInterrupt):
        fit(train, more={**memory, "task": told}, **options)
    again = fit(train, more={**memory, "task": rest}, **options)
    assert again.steps == whole.steps
    assert again.starts == whole.starts
    assert np.array_equal(again.shares, whole.shares)
    assert np.array_equal(again.weights, whole.weights)
    for one, other in zip(again.rankers, whole.rankers, strict=True):
        assert one.state().keys() == other.state().keys()
        assert all(torch.equal(value, other.state()[name]) for name, value in one.state().items())
    steps = told.reached + rest.reached
    assert len(steps) == 2 * 2 + 2, "no iteration is done twice"
    assert steps[:4] == [1, 2] * 2


def test_progress_tells_likelihood_weights_and_entropy():
    told = RecordedTask()
    found = fit(specialists=2, restarts=1, more={"task": told})
    assert told.reached == [step.number for step in found.steps]
    for step, note in zip(found.steps, told.notes, strict=True):
        assert (
            f"log P {step.objective:.1f}, pi {step.weights[0]:.2f} {step.weights[1]:.2f}, H {step.entropy:.2f}" in note
        )
        assert np.isfinite(step.objective)
        assert sum(step.weights) == pytest.approx(1.0)
        assert 0.0 <= step.entropy <= np.log(2)


def test_renumbering_moves_everything_together():
    first = fit(specialists=3, restarts=1)
    order = np.array([2, 0, 1])
    turned = first.renumbered(order)
    assert np.array_equal(turned.weights, first.weights[order])
    assert np.array_equal(turned.shares, first.shares[:, order])
    raw = torch.randn(5, len(dataset().schema))
    assert torch.equal(turned.module(raw), first.module(raw)[:, order])
    assert [s.weight for s in turned.describe()] == [first.describe()[k].weight for k in order]


def test_lists_that_tie_throughout_are_left_out():
    train = dataset()
    labels = train.labels.copy()
    labels[train.slice(3)] = 2
    labels[train.slice(7)] = 0
    part = fit(dataclasses.replace(train, labels=labels), specialists=2)
    assert part.informative.tolist() == [n for n in range(24) if n not in {3, 7}]
    assert part.shares.shape == (22, 2)


def test_too_few_queries_say_so():
    train = dataset(queries=3)
    labels = train.labels.copy()
    labels[train.slice(0)] = 1
    message = "2 queries have two different labels, too few for 3 specialists: give more queries, or lower specialists"
    with pytest.raises(DataError, match=message):
        fit(dataclasses.replace(train, labels=labels), specialists=3)
    assert fit(train, specialists=3).shares.shape == (3, 3)


def test_description_names_the_largest_weights():
    found = fit(specialists=2, max_iterations=20)
    sizes = np.bincount(found.shares.argmax(axis=1), minlength=2).tolist()
    for k, specialist in enumerate(found.describe()):
        w, names = found.rankers[k].w.numpy(), found.module.standardise.names
        largest = np.argsort(-np.abs(w))[:TOP_FEATURES]
        assert [top.feature for top in specialist.top_features] == [names[p] for p in largest]
        assert [top.weight for top in specialist.top_features] == [w[p] for p in largest]
        assert specialist.top_features[0].feature == "plain"
        assert (specialist.weight, specialist.queries) == (found.weights[k], sizes[k])


def test_first_stage_score_is_an_input_and_cutoff_keeps_its_best():
    train = dataset()
    scores = np.random.default_rng(9).normal(size=train.rows)
    found = fit(train, scores=scores, specialists=2, first_stage_score=True, cutoff=4)
    kept = np.concatenate([np.sort(train.slice(n).start + np.argsort(-scores[train.slice(n)])[:4]) for n in range(24)])
    rows = np.column_stack([train.features, scores.astype(np.float32)])[kept]
    expected = Standardise(SCHEMA, rows, "none")
    assert found.module.standardise.means.tolist() == expected.means.tolist()
    assert found.module.standardise.width == expected.width
    labels = train.labels[kept].reshape(24, 4)
    assert found.informative.tolist() == np.flatnonzero(np.ptp(labels, axis=1)).tolist()


@pytest.mark.parametrize("options", [{"cutoff": 4}, {"first_stage_score": True}])
def test_both_need_the_scores(options):
    with pytest.raises(ValueError, match="need the first stage's scores"):
        fit(**options)


def odd_rows(length):
    rng = np.random.default_rng(length)
    rows = dataset(queries=3, seed=5).features[rng.integers(0, 18, length)]
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[::2, 2] = [(-1, 4, 1e30, np.nan)[i % 4] for i in range(len(rows[::2]))]
    return rows


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"transform": "log"}, {"hidden": (4,)}], ids=["linear", "mlp"])
def test_the_graph_that_leaves_gives_the_specialists_scores(options):
    found = fit(specialists=3, epochs=1, **options)
    session = onnxruntime.InferenceSession(to_onnx(found.module, 5), providers=["CPUExecutionProvider"])
    for length in (1, 2, 17):
        rows = odd_rows(length)
        with torch.no_grad():
            module = found.module(torch.from_numpy(rows)).numpy()
            dense = found.module.standardise(torch.from_numpy(rows)).double()
        expected = torch.stack([ranker.scores(dense) for ranker in found.rankers], dim=1).numpy()
        (exported,) = session.run(None, {"features": rows})
        assert exported.shape == (length, 3)
        assert np.isfinite(exported).all()
        assert module == pytest.approx(expected, abs=1e-5)
        assert exported == pytest.approx(expected, abs=1e-5)


def test_the_module_does_not_follow_later_changes():
    found = fit(specialists=2, hidden=(4,), epochs=1)
    rows = torch.from_numpy(odd_rows(3))
    with torch.no_grad():
        before = found.module(rows)
        found.rankers[0].forget(np.random.default_rng(0))
        assert torch.equal(found.module(rows), before)
