"""True of every list: scores follow their candidate, and padding, even NaN padding, changes nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.losses import att_rank
from listwright.training.losses.confusion import confusion_loss
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import QilcmSpec

SCHEMA = FeatureSchema(
    features=(
        Feature(name="a"),
        Feature(name="b", missing_in_training=True),
        Feature(name="c", kind="categorical", categories=("x", "y")),
    )
)
FORMS = st.sampled_from(["stable", "paper"])
NUMBERS = st.one_of(
    st.floats(-1e3, 1e3, width=32), st.floats(width=32, allow_infinity=False), st.sampled_from([0.0, 1.0])
)
CANDIDATES = st.tuples(NUMBERS, NUMBERS, st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0]))
LISTS = st.lists(st.tuples(CANDIDATES, st.integers(0, 4)), min_size=1, max_size=6)
BATCHES = st.lists(LISTS, min_size=1, max_size=4)


def build(form, width=4, hidden=(4, 3)):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(50, 2)), rng.integers(0, 3, 50)]).astype(np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Ranker(SCHEMA, rows, QilcmSpec(encoder_width=width, hidden=hidden, query_norm=form)).double()


MODELS = {form: build(form) for form in ("stable", "paper")}


def padded(batch, *, extra=0, fill=0.0, label=0):
    length = max(map(len, batch)) + extra
    raw = torch.full((len(batch), length, 3), fill, dtype=torch.float64)
    labels = torch.full((len(batch), length), label)
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    for n, candidates in enumerate(batch):
        raw[n, : len(candidates)] = torch.tensor([features for features, _ in candidates], dtype=torch.float64)
        labels[n, : len(candidates)] = torch.tensor([label for _, label in candidates])
        mask[n, : len(candidates)] = True
    return raw, labels, mask


def run(model, raw, labels, mask, rank_loss="per_query"):
    """Logits, both losses and every gradient."""
    logits, normalised = model(raw, mask)[:2]
    losses = att_rank(logits, labels, mask, form=rank_loss), confusion_loss(normalised, mask)
    parameters = list(model.parameters())
    gradients = [
        torch.cat(
            [
                g.flatten()
                for g in torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
                if g is not None
            ]
        )
        for loss in losses
    ]
    return logits.detach(), [loss.item() for loss in losses], gradients


def reordered(candidates, order):
    return [candidates[i] for i in order]


@given(LISTS, FORMS, st.randoms(use_true_random=False))
def test_scores_follow_their_candidate(candidates, form, random):
    order = random.sample(range(len(candidates)), len(candidates))
    with torch.no_grad():
        before = MODELS[form](*padded([candidates])[::2])[0][0]
        after = MODELS[form](*padded([reordered(candidates, order)])[::2])[0][0]
    assert after.tolist() == pytest.approx(before[order].tolist(), abs=1e-6)


@given(
    BATCHES, FORMS, st.sampled_from([float("nan"), float("inf"), 1e30, -7.0]), st.sampled_from(["per_query", "paper"])
)
def test_what_stands_on_padding_changes_nothing(batch, form, fill, rank_loss):
    logits, losses, gradients = run(MODELS[form], *padded(batch), rank_loss)
    padded_logits, padded_losses, padded_gradients = run(MODELS[form], *padded(batch, fill=fill, label=3), rank_loss)
    assert torch.equal(logits, padded_logits)
    assert losses == padded_losses
    assert all(torch.equal(one, other) for one, other in zip(gradients, padded_gradients, strict=True))
    assert np.isfinite(losses).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@given(BATCHES, FORMS, st.integers(1, 3))
def test_more_padding_changes_nothing(batch, form, extra):
    raw, labels, mask = padded(batch)
    logits, losses, gradients = run(MODELS[form], raw, labels, mask)
    longer_logits, longer_losses, longer_gradients = run(
        MODELS[form], *padded(batch, extra=extra, fill=float("nan"), label=4)
    )
    assert longer_logits[:, : mask.shape[1]].tolist() == [pytest.approx(row, abs=1e-6) for row in logits.tolist()]
    assert longer_losses[0] == pytest.approx(losses[0], abs=1e-6)
    assert longer_losses[1] == pytest.approx(losses[1], rel=1e-6, abs=1e-6)
    assert longer_gradients[0].tolist() == pytest.approx(gradients[0].tolist(), rel=1e-4, abs=1e-4)


@given(BATCHES, FORMS)
def test_other_lists_do_not_change_a_score(batch, form):
    raw, _, mask = padded(batch)
    with torch.no_grad():
        together = MODELS[form](raw, mask)[0]
        for n, candidates in enumerate(batch):
            alone = MODELS[form](*padded([candidates])[::2])[0][0]
            assert together[n, : len(candidates)].tolist() == pytest.approx(alone.tolist(), abs=1e-6)


@given(LISTS, st.integers(2, 4), FORMS)
def test_equal_candidates_get_equal_scores(candidates, copies, form):
    with torch.no_grad():
        logits = MODELS[form](*padded([candidates * copies])[::2])[0][0].reshape(copies, -1)
    assert (logits - logits[0]).abs().max() < 1e-6


@pytest.mark.parametrize(("form", "rank_loss"), [("stable", "per_query"), ("paper", "paper")])
def test_gradient_of_the_whole_loss(form, rank_loss):
    """Raw features to eq. (10), against finite differences in every parameter; lists of 5, 3 and 1."""
    model = build(form, width=2, hidden=(2,))
    rng = np.random.default_rng(1)
    batch = [
        [((*rng.normal(size=2), float(rng.integers(0, 3))), int(rng.integers(0, 3))) for _ in range(length)]
        for length in (5, 3, 1)
    ]
    raw, labels, mask = padded(batch, fill=float("nan"))
    raw[0, 1, 1] = torch.nan
    names = [name for name, _ in model.named_parameters()]

    def loss(*values):
        logits, normalised = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (raw, mask))[:2]
        return att_rank(logits, labels, mask, form=rank_loss) + 0.01 * confusion_loss(normalised, mask)

    assert torch.autograd.gradcheck(loss, tuple(model.parameters()), atol=1e-6)
