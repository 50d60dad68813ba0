"""The loop learns what was planted, repeats itself exactly, survives interruption, and says so when it diverges."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from listwright.ranking.errors import ScoringError
from listwright.ranking.metrics import ndcg
from listwright.ranking.order import rank_by_score, ranks_of
from listwright.training import losses
from listwright.training.data.synthetic.planted import generate
from listwright.training.networks.ranker import Unbatched
from listwright.training.recipe.data import SyntheticData
from listwright.training.recipe.model import DlcmSpec, Qilcm2Spec, QilcmSpec, model_like
from listwright.training.second_stage import loop
from listwright.training.second_stage.loop import fit_network
from support.training.progress import RecordedTask

SPEC = QilcmSpec(
    encoder_width=8,
    hidden=(16,),
    batch_size=16,
    max_epochs=4,
    learning_rate=3e-3,
    dropout=0.1,
    weight_decay=1e-4,
    confusion_pairs=20,
    cutoff=8,
    ndcg_at=5,
)


@pytest.fixture(scope="module")
def data():
    """Training and validation queries under a shift, with noisy first-stage scores."""
    spec = SyntheticData(queries=160, min_length=1, max_length=14, numeric=4, categorical=1, shift=0.5, noise=0.1)
    whole, truth = generate(spec, np.random.default_rng(0))
    noisy = truth.utilities + 2.0 * np.random.default_rng(1).normal(size=whole.rows)
    train, valid = whole.select(range(110)), whole.select(range(110, 160))
    return train, valid, noisy[: train.rows], noisy[train.rows :]


def weights(fitted):
    return fitted.module.state_dict()


def same(one, other):
    pairs = zip(weights(one).items(), weights(other).values(), strict=True)
    return all(torch.equal(a, b) for (_, a), b in pairs)


def untimed(history):
    return [replace(epoch, seconds=0.0) for epoch in history]


def held_out_ndcg(fitted, valid, scores):
    """Every validation list through the form that is exported, the others below it in first-stage order."""
    module, spec, values = Unbatched(fitted.module), fitted.spec, []
    for n in range(len(valid)):
        rows = valid.slice(n)
        by_first_stage = rank_by_score(scores[rows])
        kept = np.sort(by_first_stage[: spec.cutoff])
        inputs = np.column_stack([valid.features[rows], scores[rows].astype(np.float32)])[kept]
        with torch.no_grad():
            logits = module(torch.from_numpy(inputs)).numpy()
        order = [*kept[rank_by_score(logits)], *by_first_stage[spec.cutoff :]]
        values.append(ndcg(-ranks_of(np.array(order)).astype(float), valid.labels[rows], cutoff=spec.ndcg_at))
    return float(np.nan_to_num(values).mean())


@pytest.fixture(scope="module")
def fitted(data):
    return fit_network(SPEC, *data, seed=3)


@pytest.mark.nightly
def test_learns_what_was_planted(data):
    _, valid, _, scores = data
    spec = SPEC.model_copy(update={"max_epochs": 12, "dropout": 0.0, "cutoff": 100, "confusion_pairs": "all"})
    fitted = fit_network(spec, *data, seed=0)
    first_stage = np.nan_to_num(
        [ndcg(scores[valid.slice(n)], valid.labels[valid.slice(n)], cutoff=5) for n in range(len(valid))]
    ).mean()
    assert fitted.history[-1].best_ndcg > first_stage + 0.05
    assert fitted.history[-1].rank_loss < fitted.history[0].rank_loss


def test_validation_measures_the_whole_list_through_the_best_weights(data, fitted):
    _, valid, _, scores = data
    best = fitted.history[fitted.best_epoch - 1]
    assert best.valid_ndcg == max(epoch.valid_ndcg for epoch in fitted.history) == fitted.history[-1].best_ndcg
    assert held_out_ndcg(fitted, valid, scores) == pytest.approx(best.valid_ndcg)
    assert not fitted.module.training


def test_stops_early_and_restores_the_best_epoch(data):
    _, valid, _, scores = data
    spec = SPEC.model_copy(update={"max_epochs": 40, "patience": 3, "learning_rate": 0.05})
    fitted = fit_network(spec, *data, seed=1)
    assert len(fitted.history) == fitted.best_epoch + 3 < 40
    best = fitted.history[fitted.best_epoch - 1].valid_ndcg
    assert fitted.history[-1].valid_ndcg < best
    assert held_out_ndcg(fitted, valid, scores) == pytest.approx(best)


def test_qilcm2_never_ends_below_the_first_stage_on_the_validation_queries(data):
    train, valid, *_ = data
    spec = Qilcm2Spec(hidden=(8,), encoder_width=8, max_epochs=4, patience=2, learning_rate=1.0, ndcg_at=5)
    perfect = valid.labels.astype(float)  # nothing can be better, and steps this wide are worse
    fitted = fit_network(spec, train, valid, train.labels.astype(float), perfect, seed=0)
    assert fitted.best_epoch == 0
    assert len(fitted.history) == 2, "patience counts from the start"
    assert fitted.valid_ndcg > max(epoch.valid_ndcg for epoch in fitted.history)
    assert held_out_ndcg(fitted, valid, perfect) == pytest.approx(fitted.valid_ndcg)


def test_one_seed_fixes_everything_and_leaks_nothing(data, fitted):
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    again = fit_network(SPEC, *data, seed=3)
    assert torch.equal(torch.random.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state[1])  # noqa: NPY002
    assert same(again, fitted)
    assert untimed(again.history) == untimed(fitted.history)
    assert not same(fit_network(SPEC, *data, seed=4), fitted)


@pytest.mark.parametrize("stop_after", [1, 3])
def test_interrupted_run_ends_as_an_uninterrupted_one(data, fitted, tmp_path, stop_after):
    checkpoint = tmp_path / "qilcm.pt"
    with pytest.raises(KeyboardInterrupt):
        fit_network(SPEC, *data, seed=3, checkpoint=checkpoint, task=RecordedTask(interrupt_at=stop_after))
    told = RecordedTask()
    resumed = fit_network(SPEC, *data, seed=3, checkpoint=checkpoint, task=told)
    assert same(resumed, fitted)
    assert resumed.best_epoch == fitted.best_epoch
    assert untimed(resumed.history) == untimed(fitted.history)
    assert np.array_equal(resumed.valid_values, fitted.valid_values)
    assert told.reached == [1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["qilcm.pt"]


def test_finished_run_is_not_repeated(data, fitted, tmp_path, monkeypatch):
    checkpoint = tmp_path / "qilcm.pt"
    fit_network(SPEC, *data, seed=3, checkpoint=checkpoint)
    monkeypatch.setattr(loop, "_run_epoch", lambda *_args, **_options: pytest.fail("trained again"))
    assert same(fit_network(SPEC, *data, seed=3, checkpoint=checkpoint), fitted)


def test_a_checkpoint_of_another_release_is_begun_again(data, fitted, tmp_path):
    checkpoint = tmp_path / "qilcm.pt"
    fit_network(SPEC, *data, seed=3, checkpoint=checkpoint)
    saved = torch.load(checkpoint, weights_only=True)
    del saved["values"]
    torch.save(saved, checkpoint)
    again = fit_network(SPEC, *data, seed=3, checkpoint=checkpoint)
    assert same(again, fitted)
    assert len(again.valid_values) == 4


@pytest.mark.parametrize("name", ["qilcm", "qilcm2"])
def test_values_of_every_epoch_are_those_of_its_mean(data, name):
    """And of the start, where a network starts as the first stage."""
    found = fit_network(model_like(name, SPEC), *data, seed=3)
    means = found.valid_values.mean(axis=1)
    starts = len(means) - len(found.history)
    assert starts == (name == "qilcm2")
    assert means[starts:] == pytest.approx([epoch.valid_ndcg for epoch in found.history])
    assert np.argmax(means) == found.best_epoch - 1 + starts
    assert means.max() == pytest.approx(found.valid_ndcg)


def test_interruption_while_saving_leaves_the_epoch_before(data, fitted, tmp_path, monkeypatch):
    checkpoint = tmp_path / "qilcm.pt"
    save, calls = torch.save, []

    def breaks_the_second_time(values, file):
        calls.append(file)
        if len(calls) == 2:
            file.write(b"half a checkpoint")
            raise KeyboardInterrupt
        save(values, file)

    monkeypatch.setattr(torch, "save", breaks_the_second_time)
    with pytest.raises(KeyboardInterrupt):
        fit_network(SPEC, *data, seed=3, checkpoint=checkpoint)
    assert len(torch.load(checkpoint, weights_only=True)["history"]) == 1
    assert same(fit_network(SPEC, *data, seed=3, checkpoint=checkpoint), fitted)


def test_diverging_loss_names_epoch_and_remedy(data):
    with pytest.raises(ScoringError, match=r"training loss became .* in epoch 1: lower learning_rate \(now 1e\+30\)"):
        fit_network(SPEC.model_copy(update={"learning_rate": 1e30}), *data, seed=0)


def test_diverging_last_step_is_seen_in_validation(data, tmp_path):
    """With one batch an epoch the loss is still that of the first weights."""
    spec = SPEC.model_copy(update={"learning_rate": 1e30, "batch_size": 1000})
    with pytest.raises(ScoringError, match=r"validation scores .* in epoch 1: lower learning_rate"):
        fit_network(spec, *data, seed=0, checkpoint=tmp_path / "qilcm.pt")
    assert not (tmp_path / "qilcm.pt").exists()


def test_weight_of_the_confusion_loss_as_the_lambda_of_eq_10(data, fitted):
    train = data[0]
    mean_length = np.minimum(train.lengths, SPEC.cutoff).mean()
    width = fitted.module.network.width
    assert fitted.equivalent_lambda == pytest.approx(SPEC.confusion_weight / (2 * mean_length * width))
    assert all(epoch.confusion_loss > 0 for epoch in fitted.history)
    without = fit_network(SPEC.model_copy(update={"confusion_weight": 0.0, "max_epochs": 1}), *data, seed=3)
    assert without.equivalent_lambda == 0.0
    assert without.history[0].confusion_loss == 0.0


def test_confusion_weight_draws_lists_together(data):
    without, with_much = (
        fit_network(SPEC.model_copy(update={"confusion_weight": weight}), *data, seed=3) for weight in (1e-9, 1.0)
    )
    assert with_much.history[-1].confusion_loss < without.history[-1].confusion_loss


@pytest.mark.parametrize("variant", ["V2", "V3"])
def test_variants_without_the_confusion_loss(data, variant):
    """Whatever confusion_weight says."""
    spec = SPEC.model_copy(update={"max_epochs": 1, "variant": variant})
    fitted = fit_network(spec, *data, seed=3)
    assert (fitted.equivalent_lambda, fitted.history[0].confusion_loss) == (0.0, 0.0)
    assert same(fitted, fit_network(spec.model_copy(update={"confusion_weight": 0.0}), *data, seed=3))


def test_a_recipe_chooses_the_ranking_loss():
    generator = torch.Generator().manual_seed(0)
    lists = torch.randn(3, 5, generator=generator), torch.randint(0, 3, (3, 5), generator=generator)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    expected = {
        "per_query": losses.att_rank(*lists, mask),
        "paper": losses.att_rank(*lists, mask, form="paper"),
        "softmax": losses.softmax_cross_entropy(*lists, mask),
        "plackett_luce": losses.plackett_luce(*lists, mask),
    }
    assert len({value.item() for value in expected.values()}) == 4
    for name, value in expected.items():
        assert torch.equal(loop.ranking_loss(name, *lists, mask), value)


@pytest.mark.parametrize(
    "spec", [DlcmSpec(encoder_width=6, max_epochs=3), Qilcm2Spec(encoder_width=6, hidden=(6,), max_epochs=3)]
)
def test_an_interrupted_rival_ends_as_an_uninterrupted_one(data, tmp_path, spec):
    checkpoint = tmp_path / "rival.pt"
    with pytest.raises(KeyboardInterrupt):
        fit_network(spec, *data, seed=3, checkpoint=checkpoint, task=RecordedTask(interrupt_at=2))
    resumed = fit_network(spec, *data, seed=3, checkpoint=checkpoint)
    assert len(resumed.history) == 3
    assert same(resumed, fit_network(spec, *data, seed=3))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qilcm", "qilcm2", "dlcm", "dcm", "mlp"])
def test_half_precision_trains_as_well_within_noise(data, name):
    """Matrix products in bfloat16; what comes out is float32 and ranks as well."""
    spec = model_like(name, SPEC.model_copy(update={"max_epochs": 6, "dropout": 0.0}))
    full = fit_network(spec, *data, seed=0)
    half = fit_network(spec.model_copy(update={"precision": "bfloat16"}), *data, seed=0)
    assert all(value.dtype == torch.float32 for value in weights(half).values())
    assert not same(full, half)
    best = [max(epoch.valid_ndcg for epoch in fitted.history) for fitted in (full, half)]
    assert best[1] == pytest.approx(best[0], abs=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qilcm-v1", "qilcm-v3", "qilcm2", "dlcm", "dcm", "mlp"])
def test_every_rival_learns(data, name):
    fitted = fit_network(model_like(name, SPEC), *data, seed=0)
    losses_by_epoch = [epoch.rank_loss for epoch in fitted.history]
    assert losses_by_epoch[-1] < 0.98 * losses_by_epoch[0], losses_by_epoch


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qilcm", "qilcm2", "dlcm", "dcm", "mlp"])
def test_a_gpu_learns_what_a_cpu_learns_within_noise(data, name, precision):
    spec = model_like(name, SPEC.model_copy(update={"max_epochs": 6, "dropout": 0.0}))
    on_cpu = fit_network(spec, *data, seed=0)
    on_gpu = fit_network(spec.model_copy(update={"precision": precision}), *data, seed=0, device="cuda")
    assert all(value.device.type == "cpu" and value.dtype == torch.float32 for value in weights(on_gpu).values())
    best = [max(epoch.valid_ndcg for epoch in fitted.history) for fitted in (on_cpu, on_gpu)]
    assert best[1] == pytest.approx(best[0], abs=0.02)


@pytest.mark.parametrize("kind", ["dlcm", "dcm"])
def test_what_reads_the_list_learns_nothing_of_the_order_of_rows(data, kind):
    """The chosen row stands first, the first stage tells no candidates apart, and there is nothing else to learn."""
    rows, length = 300, 6
    labels = np.tile([1] + [0] * (length - 1), rows // length).astype(np.int32)
    whole = replace(
        data[0].select([0]),
        features=np.zeros((rows, len(data[0].schema)), dtype=np.float32),
        labels=labels,
        offsets=np.arange(0, rows + 1, length),
        qids=tuple(map(str, range(rows // length))),
    )
    spec = model_like(kind, SPEC.model_copy(update={"dropout": 0.0, "max_epochs": 6, "learning_rate": 0.02}))
    fitted = fit_network(spec, whole, whole.select(range(40)), np.zeros(rows), np.zeros(40 * length), seed=0)
    chance = ndcg(np.zeros(length), labels[:length], cutoff=spec.ndcg_at)
    assert fitted.valid_ndcg == pytest.approx(chance, abs=0.15)
