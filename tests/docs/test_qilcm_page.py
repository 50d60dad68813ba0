"""The example of ``docs/what-qilcm-sees.md`` is what the code computes."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.relative import KINDS, RelativeColumn, RelativeColumns
from listwright.training.losses import att_rank, confusion_loss
from listwright.training.networks.qilcm import QilcmNetwork
from listwright.training.recipe.model import QilcmSpec
from support.pages.figure_blocks import blocks, page, table

PAGE = page("docs/what-qilcm-sees.md")
OFFERS = ("A", "B", "C")
FEATURES = ("price", "stars", "distance")
SHORT = np.array([[0.10, 0.4, 0.2], [0.15, 0.8, 0.2], [0.25, 0.6, 0.2]])
LONG = np.stack([2.0 * SHORT[:, 0] + 0.3, SHORT[:, 1], np.full(3, 0.7)], axis=1)
ROUTES = {"short": SHORT, "long": LONG}
LOGITS = torch.tensor([[0.2, 0.9, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([[1, 2, 0]])
SCORES = torch.tensor([[0.3, 1.2, -0.5]], dtype=torch.float64)


def attention():
    return torch.softmax(LOGITS, dim=-1)


def steps(rows):
    """Equations (4) to (8): refined, its weighted mean and deviation, normalised."""
    h, a = torch.from_numpy(rows)[None], attention()
    context = (a[..., None] * h).sum(dim=-2, keepdim=True)
    refined = torch.cat([context * h, h], dim=-1)
    normalised, _ = QilcmNetwork(len(FEATURES), QilcmSpec())._normalise(refined, a)
    mean = (a[..., None] * refined).sum(dim=-2)
    deviation = (a[..., None] * (refined - mean).square()).sum(dim=-2).sqrt()
    return refined[0], mean[0], deviation[0], normalised[0]


def plain(values, digits=3):
    return [f"{value:.{digits}f}".replace("-0." + "0" * digits, "0." + "0" * digits) for value in values]


def signed(values):
    return ["0.00" if abs(value) < 0.005 else f"{value:+.2f}" for value in values]


def lists():
    """The inputs of both lists."""
    rows = [
        [route, offer, *(f"{value:.2f}" for value in row), f"{weight:.3f}"]
        for route, found in ROUTES.items()
        for offer, row, weight in zip(OFFERS, found, attention()[0].tolist(), strict=True)
    ]
    return table(["route", "offer", *FEATURES, "attention a"], rows)


def computation():
    """The equations on the short route."""
    refined, mean, deviation, normalised = steps(SHORT)
    rows = [
        *([f"g of {offer}, (5)", *plain(row)] for offer, row in zip(OFFERS, refined.tolist(), strict=True)),
        ["mean m, (6)", *plain(mean.tolist())],
        ["deviation √v, (7)", *plain(deviation.tolist())],
        *([f"u of {offer}, (8)", *signed(row)] for offer, row in zip(OFFERS, normalised.tolist(), strict=True)),
    ]
    return table(["short route", *(f"c × {name}" for name in FEATURES), *FEATURES], rows)


def relative(rows):
    """z-score and rank of the price, as the first stage gets them."""
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in FEATURES))
    columns = RelativeColumns([RelativeColumn(feature="price", kind=kind) for kind in KINDS], schema)
    return columns.widened(rows.astype(np.float32))[:, len(FEATURES) :]


def compared():
    """The price in both lists: as it is, normalised by QILCM, as list-relative columns."""
    rows = []
    for route, found in ROUTES.items():
        normalised, columns = steps(found)[3][:, len(FEATURES)].tolist(), relative(found)
        for at, offer in enumerate(OFFERS):
            z, rank = columns[at]
            price = f"{found[at, 0]:.2f}"
            rows.append([route, offer, price, f"{normalised[at]:+.2f}", f"{z:+.2f}", f"{rank:.1f}"])
    return table(["route", "offer", "price", "u, eq. (8)", "`price (z in list)`", "`price (rank in list)`"], rows)


def ranking_loss():
    """AttRank of one list."""
    weights = torch.where(LABELS > 0, LABELS.to(torch.float64).exp(), 0.0)[0]
    targets, shares = weights / weights.sum(), torch.softmax(SCORES, dim=-1)[0]
    rows = [
        [offer, label, f"{weight:.2f}", f"{target:.3f}", f"{score:+.1f}", f"{share:.3f}"]
        for offer, label, weight, target, score, share in zip(
            OFFERS,
            LABELS[0].tolist(),
            weights.tolist(),
            targets.tolist(),
            SCORES[0].tolist(),
            shares.tolist(),
            strict=True,
        )
    ]
    rows.append(["loss, (12) without 1/n", "", "", "", "", f"{att_rank(SCORES, LABELS).item():.3f}"])
    return table(["offer", "label y", "weight", "target, (11)", "score", "softmax s, (9)"], rows)


def chamfer(both):
    """Equation (14) of two lists, from the batch's loss: (13) is half of it."""
    return 2.0 * confusion_loss(torch.stack(both), torch.ones(2, len(OFFERS), dtype=torch.bool)).item()


def confusion():
    """How far apart the two lists lie."""
    before, after = (chamfer([steps(rows)[place] for rows in ROUTES.values()]) for place in (0, 3))
    return table(
        ["Chamfer distance of the two lists, (14)", ""],
        [["before query normalisation, g", f"{before:.2f}"], ["after it, u", f"{after:.2f}"]],
    )


def tables():
    return [lists(), computation(), compared(), ranking_loss(), confusion()]


def test_the_example_is_what_the_code_computes():
    assert blocks(PAGE) == tables()


def test_normalisation_removes_level_scale_and_constants():
    (_, _, _, short), (_, _, _, long) = steps(SHORT), steps(LONG)
    assert short.numpy() == pytest.approx(long.numpy(), abs=0.02), "up to epsilon"
    assert short[:, 2].tolist() == short[:, 5].tolist() == [0.0, 0.0, 0.0]


def test_and_the_size_of_the_context():
    normalised = steps(SHORT)[3]
    assert normalised[:, :3].numpy() == pytest.approx(normalised[:, 3:].numpy(), abs=0.02), "up to epsilon"


def test_so_do_list_relative_columns():
    assert relative(SHORT) == pytest.approx(relative(LONG), abs=1e-5)


def test_the_chamfer_distance_is_that_of_the_paper():
    one, other = (steps(rows)[0] for rows in ROUTES.values())
    squared = torch.cdist(one, other).square()
    assert chamfer([one, other]) == pytest.approx((squared.amin(0).sum() + squared.amin(1).sum()).item())
