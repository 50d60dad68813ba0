"""The second-stage part of a recipe: the network, and how it is fitted; or none."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from listwright.ranking.errors import RecipeError
from listwright.training.recipe.data import Positive, RecipePart

RankLoss = Literal["per_query", "paper", "softmax", "plackett_luce"]


class Network(RecipePart):
    """Settings shared by every second stage: the encoder of QILCM's eqs. (1) and (2), the loss and the fit.

    Args:
        encoder_width: Width of the two encoder layers, eq. (1).
        rank_loss: Loss: AttRank without (``per_query``) or with (``paper``) the factor 1/n of eq. (12); ``softmax``,
            cross entropy with gain 2^y - 1; or ``plackett_luce``, the exact likelihood with ties. See
            :mod:`listwright.training.losses`.
        first_stage_score: Whether the first stage's score is one more input feature.
        relative: Whether the list-relative columns that the first stage sees are inputs, too.
        cutoff: Number of candidates of the first stage to rerank, C.
        precision: Precision of the training steps' matrix products: ``bfloat16`` for devices that are fast at it;
            weights, losses, validation and what is exported stay float32.
        dropout, weight_decay: Regularisation on top of the paper's; 0 is the paper.
        batches: Composition of batches: lists of ``similar`` lengths, which pads less, or lists drawn at ``random``, as
            papers have them.
        batch_size, learning_rate, max_epochs, patience: Settings of Adam, in queries per batch; training stops after
            ``patience`` epochs without a better validation NDCG at ``ndcg_at``.
    """

    encoder_width: Positive = 100
    rank_loss: RankLoss = "per_query"
    first_stage_score: bool = True
    relative: bool = False
    cutoff: Positive = 100
    precision: Literal["float32", "bfloat16"] = "float32"
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    batches: Literal["similar", "random"] = "similar"
    batch_size: Positive = 80
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    max_epochs: Positive = 100
    patience: Positive = 15
    ndcg_at: Positive = 10


class QilcmSpec(Network):
    """QILCM (Zhu, Chen, He, AAAI 2019).

    Args:
        variant: Variant: the whole model, or an ablation of the paper: ``V1`` with plain means and variances instead of
            attention-weighted ones (a_i = 1/n in eqs. 4, 6 and 7), ``V2`` without the confusion loss (lambda = 0),
            ``V3`` without it and without query normalisation. V2 and V3 ignore ``confusion_weight``.
        hidden: Hidden widths of both MLPs, eqs. (3) and (9).
        query_norm: Form of eq. (8): ``1 / sqrt(var + eps^2)`` (``stable``) or as printed, ``1 / (sigma + eps)``
            (``paper``, which is served in float64 up to there and takes about twice the time).
        confusion_weight: Weight lambda' of the normalised Chamfer loss; the equal lambda of eq. (10) is printed.
        confusion_pairs: Number of query pairs sampled per batch for eq. (13), by default about one for each query; or
            ``all``.
    """

    kind: Literal["qilcm"] = "qilcm"
    variant: Literal["full", "V1", "V2", "V3"] = "full"
    hidden: tuple[Positive, ...] = (256, 128)
    query_norm: Literal["stable", "paper"] = "stable"
    confusion_weight: Annotated[float, Field(ge=0.0)] = 0.01
    confusion_pairs: Annotated[Positive | Literal["all"], BeforeValidator(lambda n: "all" if n is None else n)] = 80

    @property
    def title(self) -> str:
        """Name for display."""
        return "QILCM" if self.variant == "full" else f"QILCM {self.variant}"

    @property
    def confusion(self) -> float:
        """lambda' of the variant."""
        return 0.0 if self.variant in ("V2", "V3") else self.confusion_weight


class Qilcm2Spec(Network):
    """A stronger set model in QILCM's family (ours), which keeps information that QILCM drops.

    Its defaults are what was measured on top of list-relative columns, one setting for all sets: ``docs/attempts.md``.

    Args:
        context: Way in which a candidate sees the others: ``blocks``, two blocks of self-attention, or ``seeds``, lists
            pooled by several learned attentions.
        seeds: Number of attentions that pool the list.
        heads: Number of attention heads in each block.
        members: Number of networks with other initial weights in one graph, whose mean scores.
        hidden: Hidden widths of the MLP that scores.
        input_noise: Standard deviation of the noise on the scaled inputs, which lie in [0, 1], while training.
    """

    title: ClassVar[str] = "QILCM2"
    kind: Literal["qilcm2"] = "qilcm2"
    encoder_width: Positive = 48
    relative: bool = True
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.3
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    batch_size: Positive = 40
    learning_rate: Annotated[float, Field(gt=0.0)] = 2e-3
    context: Literal["seeds", "blocks"] = "blocks"
    seeds: Positive = 2
    heads: Positive = 4
    members: Positive = 1
    hidden: tuple[Positive, ...] = (64,)
    input_noise: Annotated[float, Field(ge=0.0)] = 0.02


class _Reader(Network):
    """Settings of a network that reads the list one candidate after the other.

    Args:
        order: Order of reading: by the first stage's score (equal scores in input order, in training in a random one),
            or as the list is ``presented``. The first is sorted inside the exported graph, so the order of a request
            does not matter.
    """

    order: Literal["first_stage", "presented"] = "first_stage"

    @model_validator(mode="after")
    def _order_is_known(self) -> _Reader:
        if self.order == "first_stage" and not self.first_stage_score:
            raise ValueError('order = "first_stage" needs first_stage_score = true: use order = "presented" without it')
        return self


class DlcmSpec(_Reader):
    """DLCM (Ai, Bi, Guo, Croft, SIGIR 2018): a GRU reads the list from the worst candidate to the best.

    Args:
        heads: Number of queries that the final state asks of every candidate; 3 in the authors' code.
    """

    title: ClassVar[str] = "DLCM"
    kind: Literal["dlcm"] = "dlcm"
    heads: Positive = 3


class DcmSpec(_Reader):
    """DCM (Mottini, Acuna-Agost, KDD 2017): a pointer network reads the list from the best candidate to the worst.

    Args:
        state_width: Width of the LSTMs and of the attention that points. The QILCM paper, which compares with it, gives
            no sizes: the width is our reading, and so is the encoder in front, which all rivals share.
    """

    title: ClassVar[str] = "DCM"
    kind: Literal["dcm"] = "dcm"
    state_width: Positive = 128


class MlpSpec(Network):
    """A pointwise network, which sees one candidate at a time: the baseline for the value of the list.

    Args:
        hidden: Hidden widths behind the encoder.
    """

    title: ClassVar[str] = "MLP"
    kind: Literal["mlp"] = "mlp"
    hidden: tuple[Positive, ...] = (256, 128)


class FirstStageAlone(RecipePart):
    """No second stage: the bundle answers with the first stage's order."""

    kind: Literal["first_stage"] = "first_stage"


NetworkSpec = QilcmSpec | Qilcm2Spec | DlcmSpec | DcmSpec | MlpSpec
"""The networks that can be fitted, as a closed union."""

Model = Annotated[NetworkSpec | FirstStageAlone, Field(discriminator="kind")]
"""What a recipe's ``[model]`` can be."""

_CLASSES: dict[str, type[Network]] = {spec.model_fields["kind"].default: spec for spec in get_args(NetworkSpec)}

TITLES = {kind: network().title for kind, network in _CLASSES.items()}  # type: ignore[attr-defined]
"""Display name of each kind."""

MODEL_NAMES = (
    "qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3", "qilcm-paper", "qilcm2", "dlcm", "dcm", "mlp", "first_stage",
)  # fmt: skip
"""Values of ``--model``: every kind, QILCM's variants, and QILCM as printed."""

_PRINTED = {
    "encoder_width": 100,
    "hidden": (256, 128),
    "query_norm": "paper",
    "rank_loss": "paper",
    "confusion_pairs": "all",
    "first_stage_score": False,
    "precision": "float32",
    "dropout": 0.0,
    "weight_decay": 0.0,
    "batches": "random",
    "batch_size": 80,
    "learning_rate": 1e-3,
    "max_epochs": 100,
}
"""``qilcm-paper``: values of the QILCM paper; docs/rivals.md lists what it leaves open."""

_SHARED = {*Network.model_fields, "hidden"}


class Rivals(RecipePart):
    """Settings for networks that a recipe's ``[model]`` is compared with, where they differ from it: tuned values.

    Each stands for itself: what it does not say has the kind's own default, not the model's value.
    """

    qilcm: QilcmSpec | None = None
    qilcm2: Qilcm2Spec | None = None
    dlcm: DlcmSpec | None = None
    dcm: DcmSpec | None = None
    mlp: MlpSpec | None = None

    def spec(self, kind: str) -> NetworkSpec | None:
        """Return the settings of this kind; None where the recipe has none."""
        spec: NetworkSpec | None = getattr(self, kind, None)
        return spec


def model_like(name: str, like: Model) -> Model:
    """Return the model of that name, fitted like another one.

    Args:
        name: Name of the model, from :data:`MODEL_NAMES`.
        like: Model of a recipe. Values that both have in common (encoder, hidden widths, loss, cutoff, the fit) are
            taken from it, and everything if it is of the same kind. The rest has the kind's own default.
            ``qilcm-paper`` takes only what the paper leaves open.

    Raises:
        RecipeError: if there is no such model.
    """
    if name not in MODEL_NAMES:
        raise RecipeError(f"no model {name!r}: use one of {', '.join(MODEL_NAMES)}")
    kind, _, variant = name.partition("-")
    if kind == "first_stage":
        return FirstStageAlone()
    target = _CLASSES[kind]
    fields = set(target.model_fields) if like.kind == kind else set(target.model_fields) & _SHARED
    values = {field: getattr(like, field) for field in fields & like.model_fields_set} | {"kind": kind}
    if kind == "qilcm":
        values["variant"] = variant.upper() or "full"
    if name == "qilcm-paper":
        values |= _PRINTED | {"variant": "full"}
        if values.get("confusion_weight") == 0.0:  # the paper has that loss, whatever the recipe leaves out
            del values["confusion_weight"]
    if issubclass(target, _Reader) and not values.get("first_stage_score", True):
        values["order"] = "presented"  # there is no other
    model: Model = target.model_validate(values)  # type: ignore[assignment]
    return model
