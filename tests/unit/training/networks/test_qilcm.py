"""The network around its edges: where it knows nothing, where it could divide by zero, and as an exported graph."""

import copy

import numpy as np
import onnxruntime
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.export.second_stages import ranker_graph
from listwright.training.networks.qilcm import QilcmNetwork
from listwright.training.networks.ranker import Preprocess, Ranker, Unbatched
from listwright.training.recipe.model import QilcmSpec

FORMS = ["stable", "paper"]
SCHEMA = FeatureSchema(
    features=(
        Feature(name="plain"),
        Feature(name="holey", missing_in_training=True),
        Feature(name="kind", kind="categorical", categories=("a", "b", "c")),
        Feature(name="same"),
    )
)


def raw_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.column_stack(
        [
            rng.lognormal(size=count) * 100,
            np.where(rng.random(count) < 0.3, np.nan, rng.normal(size=count)),
            rng.integers(0, 4, count),
            np.full(count, 3.0),
            rng.normal(size=count),
        ]
    )
    return rows.astype(np.float32)


def model(**options):
    return Ranker(SCHEMA, raw_rows(500), QilcmSpec(**options)).eval()


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_widths_of_the_paper():
    network = QilcmNetwork(136, QilcmSpec())
    assert network.width == 2 * (136 + 100)
    assert [m.out_features for m in network.attention if isinstance(m, torch.nn.Linear)] == [256, 128, 1]
    assert [m.in_features for m in network.ranking if isinstance(m, torch.nn.Linear)] == [472, 256, 128]


@pytest.mark.parametrize("form", FORMS)
def test_single_candidate_has_nothing_to_be_compared_with(form):
    network = model(query_norm=form)
    raw = torch.from_numpy(raw_rows(5))[:, None]
    logits, normalised = network(raw, torch.ones(5, 1, dtype=torch.bool))[:2]
    assert not normalised.any()
    assert np.ptp(logits.detach().numpy()) < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_normalised_representation_has_weighted_mean_0_and_variance_1(form):
    network = model(query_norm=form).double()
    raw = torch.from_numpy(raw_rows(40)).double()
    found = network.network.represent(network.preprocess(raw)[None])
    a = found.attention[..., None]
    variance = (a * found.normalised.square()).sum(dim=1)[0]
    of_refined = (a * (found.refined - (a * found.refined).sum(dim=1)).square()).sum(dim=1)[0]
    assert (a * found.normalised).sum(dim=1).abs().max() < 1e-9
    spread = of_refined > 1e-2
    assert spread.any()
    assert (variance[spread] - 1.0).abs().max() < 1e-3
    assert torch.isfinite(found.normalised).all()


@pytest.mark.parametrize("form", FORMS)
def test_constant_features_give_finite_values_and_gradients(form):
    network = model(query_norm=form)
    row = torch.from_numpy(raw_rows(1))
    raw = torch.cat([row.expand(6, -1)[None], torch.from_numpy(raw_rows(6))[None]])
    logits, normalised = network(raw, torch.ones(2, 6, dtype=torch.bool))[:2]
    (logits.sum() + normalised.square().sum()).backward()
    assert torch.isfinite(logits).all()
    assert normalised[0].abs().max() < 1e-3
    for name, parameter in network.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


def test_constant_dimensions_get_gradient_zero_in_paper_form():
    network = QilcmNetwork(2, QilcmSpec(encoder_width=2, hidden=(3,), query_norm="paper"))
    a = torch.tensor([[0.25, 0.75]])
    refined = torch.tensor([[[1.0, 2.0], [3.0, 2.0]]], requires_grad=True)
    normalised, _ = network._normalise(refined, a)
    sigma = np.sqrt(0.25 * 1.5**2 + 0.75 * 0.5**2)
    assert normalised[0, :, 0].tolist() == pytest.approx([-1.5 / (sigma + 1e-6), 0.5 / (sigma + 1e-6)])
    assert normalised[0, :, 1].tolist() == [0.0, 0.0]
    normalised[0, :, 1].square().sum().backward()
    assert not refined.grad.any()


def test_what_is_constant_over_a_list_is_erased():
    """Only the encoder's non-linearity, the attention and sign(c) still see it: x itself does not."""
    network = QilcmNetwork(3, QilcmSpec(encoder_width=2, hidden=(4,))).double()
    x = torch.rand(1, 6, 3, dtype=torch.float64)
    x[..., 2] = 0.7
    width = network.width // 2
    normalised = network.represent(x).normalised
    assert normalised[..., 2].abs().max() < 1e-9
    assert normalised[..., width + 2].abs().max() < 1e-9


def test_context_acts_by_its_sign():
    network = QilcmNetwork(3, QilcmSpec(encoder_width=4, hidden=(4,), query_norm="paper")).double()
    x = torch.rand(1, 9, 3, dtype=torch.float64)
    found = network.represent(x)
    product, plain = found.normalised.chunk(2, dim=-1)
    large = found.context[0].abs() > 0.2
    assert large.any()
    expected = torch.sign(found.context)[..., None, :] * plain
    assert (product - expected)[..., large].abs().max() < 1e-3


def test_dropout_acts_in_training_only():
    network = model(dropout=0.5)
    raw, mask = torch.from_numpy(raw_rows(20))[None], torch.ones(1, 20, dtype=torch.bool)
    assert torch.equal(network(raw, mask)[0], network(raw, mask)[0])
    network.train()
    assert not torch.equal(network(raw, mask)[0], network(raw, mask)[0])


@pytest.mark.parametrize("options", [{"query_norm": form} for form in FORMS] + [{"variant": "V1"}, {"variant": "V3"}])
def test_the_written_graph_is_the_same_function(options):
    network = model(**options)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)  # bends the ELUs
    exact, graph = Unbatched(copy.deepcopy(network).double()), session(network)
    for length in (1, 2, 60):
        rows = raw_rows(length)
        with torch.no_grad():
            expected = exact(torch.from_numpy(rows).double()).numpy()
        assert graph.run(None, {"features": rows})[0] == pytest.approx(expected, rel=1e-5, abs=2e-5)


def test_equal_candidates_have_equal_scores_whatever_the_kernels_do_with_the_last_rows():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    schema = FeatureSchema(features=(Feature(name="price"), Feature(name="loyalty")))
    rows = np.column_stack([rng.random(200), rng.random(200), rng.normal(size=200)]).astype(np.float32)
    network = Ranker(schema, rows, QilcmSpec(hidden=(64,)), score_column=2).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3.0)  # as a long fit leaves them
    exact, graph = Unbatched(copy.deepcopy(network).double()), session(network)
    for length in (2, 5, 6, 7, 9, 33):
        for row in rows[:60]:
            features = np.repeat(row[None], length, axis=0)
            with torch.no_grad():
                expected = exact(torch.from_numpy(features).double()).numpy()
            found = graph.run(None, {"features": features})[0]
            assert len(set(found.tolist())) == 1
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


def session(network):
    return onnxruntime.InferenceSession(ranker_graph(network), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kinds", [("numeric",), ("categorical",), ("categorical", "numeric")])
def test_the_written_graph_takes_columns_of_one_kind_alone(kinds):
    categories = {"numeric": (), "categorical": ("a", "b")}
    schema = FeatureSchema(features=tuple(Feature(name=kind, kind=kind, categories=categories[kind]) for kind in kinds))
    rows = np.random.default_rng(0).integers(0, 3, (40, len(kinds))).astype(np.float32)
    network = Ranker(schema, rows, QilcmSpec()).eval()
    with torch.no_grad():
        expected = Unbatched(network)(torch.from_numpy(rows)).numpy()
    assert session(network).run(None, {"features": rows})[0] == pytest.approx(expected, abs=1e-4)


@pytest.fixture(scope="module")
def exported():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = model()
    return network, session(network)


def parity(exported, rows):
    network, onnx = exported
    with torch.inference_mode():
        expected = Unbatched(network)(torch.from_numpy(rows)).numpy()
    (found,) = onnx.run(None, {"features": rows})
    assert found.shape == (len(rows),)
    return float(np.abs(found - expected).max())


def test_exported_graph_agrees_on_odd_values(exported):
    rows = raw_rows(8)
    rows[:, 0] = [0.0, 1e30, -1e30, 1e-30, 1e-9, np.nan, 3e38, 5.0]
    rows[:, 2] = [0, 1, 2, 3, 4, -1, np.nan, 1e30]
    assert parity(exported, rows) < 1e-4
    assert parity(exported, np.full((4, 5), np.nan, dtype=np.float32)) < 1e-4


def test_exported_graph_agrees_where_the_context_crosses_zero(exported):
    """There normalised ``c * h`` jumps from one sign to the other, over a width of about epsilon / sigma."""
    network, _ = exported
    start, end = np.nan_to_num(raw_rows(30, seed=4)), np.nan_to_num(raw_rows(30, seed=5))
    end[:, 2] = start[:, 2]

    def between(t):
        return (start + np.float32(t) * (end - start)).astype(np.float32)

    def context(t):
        with torch.no_grad():
            x = network.preprocess(torch.from_numpy(between(t)))[None]
            return network.network.represent(x).context[0]

    crossing = torch.nonzero(context(0.0) * context(1.0) < 0.0).flatten().tolist()
    assert crossing
    for k in crossing:
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if context(middle)[k] * context(0.0)[k] > 0.0 else (low, middle)
        assert context(low)[k].abs() < 1e-5
        for t in (low, high, low - 1e-3, high + 1e-3, low - 1e-2, high + 1e-2):
            assert parity(exported, between(t)) < 1e-4


def test_preprocessing_is_part_of_the_weights():
    one, other = model(), Ranker(SCHEMA, raw_rows(50, seed=9), QilcmSpec())
    other.load_state_dict(one.state_dict())
    raw, mask = torch.from_numpy(raw_rows(20))[None], torch.ones(1, 20, dtype=torch.bool)
    assert torch.equal(one(raw, mask)[0], other.eval()(raw, mask)[0])
    assert isinstance(one.preprocess, Preprocess)


def test_variants_of_the_paper():
    """Table 3: V1 weighs all candidates alike, V2 is the same network, V3 does not normalise."""
    x = torch.rand(1, 7, 3)
    found = {}
    for variant in ("full", "V1", "V2", "V3"):
        torch.manual_seed(0)
        network = QilcmNetwork(3, QilcmSpec(encoder_width=4, hidden=(4,), variant=variant))
        found[variant] = network.represent(x)
    assert found["V1"].attention[0].tolist() == pytest.approx([1 / 7] * 7)
    variance = found["V1"].refined.var(dim=1, unbiased=False)
    by_formula = (found["V1"].refined - found["V1"].refined.mean(dim=1)) / torch.sqrt(variance + 1e-6)
    torch.testing.assert_close(found["V1"].normalised, by_formula, rtol=1e-3, atol=1e-4)
    assert torch.equal(found["V2"].normalised, found["full"].normalised)
    assert found["full"].attention[0].tolist() != pytest.approx([1 / 7] * 7)
    assert torch.equal(found["V3"].normalised, found["V3"].refined)
    assert torch.equal(found["V3"].refined, found["full"].refined)


def test_the_written_graph_ignores_a_column_that_had_one_value_in_training():
    ranker = model()
    rows = raw_rows(7, seed=1)
    rows[:, 3] = 10.0 * np.arange(7)
    with torch.no_grad():
        expected = Unbatched(ranker)(torch.from_numpy(rows)).numpy()
    assert session(ranker).run(None, {"features": rows})[0] == pytest.approx(expected, abs=1e-4)
