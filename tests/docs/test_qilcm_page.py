"""The example of ``docs/what-qilcm-sees.md`` is what the code computes."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.relative import NUMBER_KINDS, RelativeColumn, RelativeColumns
from listwright.training.losses import confusion_loss
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


def shown(representation):
    """The product of the price with the context, the price and the distance."""
    return representation[..., [0, len(FEATURES), len(FEATURES) + 2]].tolist()


def computation():
    """The equations on the short route."""
    refined, mean, deviation, normalised = steps(SHORT)
    rows = [
        *([f"g of {offer}, (5)", *plain(row)] for offer, row in zip(OFFERS, shown(refined), strict=True)),
        ["mean m, (6)", *plain(shown(mean))],
        ["deviation √v, (7)", *plain(shown(deviation))],
        *([f"u of {offer}, (8)", *signed(row)] for offer, row in zip(OFFERS, shown(normalised), strict=True)),
    ]
    return table(["short route", "c × price", "price", "distance"], rows)


def relative(rows):
    """z-score and rank of the price, as the first stage gets them."""
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in FEATURES))
    columns = RelativeColumns([RelativeColumn(feature="price", kind=kind) for kind in NUMBER_KINDS], schema)
    return columns.widened(rows.astype(np.float32))[:, len(FEATURES) :]


def compared():
    """Both lists: as they are, the price as QILCM normalises it, and its list-relative columns."""
    rows = []
    for route, found in ROUTES.items():
        normalised, columns = steps(found)[3][:, len(FEATURES)].tolist(), relative(found)
        for at, (offer, weight) in enumerate(zip(OFFERS, attention()[0].tolist(), strict=True)):
            rows.append(
                [route, offer, f"{found[at, 0]:.2f}", f"{weight:.3f}", *signed([normalised[at], columns[at][0]])]
            )
    return table(["route", "offer", "price", "attention", "u, (8)", "z in list"], rows)


def chamfer(both):
    """Equation (14) of two lists, from the batch's loss: (13) is half of it."""
    return 2.0 * confusion_loss(torch.stack(both), torch.ones(2, len(OFFERS), dtype=torch.bool)).item()


def test_the_example_is_what_the_code_computes():
    assert blocks(PAGE) == [compared(), computation()]
    before, after = (chamfer([steps(rows)[place] for rows in ROUTES.values()]) for place in (0, 3))
    assert f"{before:.2f} before query normalisation and {after:.2f} after it" in " ".join(PAGE.split())


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
