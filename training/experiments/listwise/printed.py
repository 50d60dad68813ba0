"""What the QILCM paper prints (Zhu, Chen, He, AAAI 2019, Tables 1 to 3), to stand beside what is measured here."""

from __future__ import annotations

from dataclasses import dataclass

METHODS = ("qilcm", "dcm", "dlcm", "lambdamart", "qilcm-v1", "qilcm-v2", "qilcm-v3")
"""Columns of :attr:`Printed.rows`: Table 2's, then those that Table 3 adds."""

NEAR = 0.01
"""Copies of a set differ by a few queries: a number within this share is taken for the printed one."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A data set of the paper.

    Args:
        name: as the paper has it.
        queries, features: Table 1.
        rows: metric -> the values of :data:`METHODS`.
    """

    name: str
    queries: int
    features: int
    rows: dict[str, tuple[float, ...]]

    def value(self, metric: str, method: str) -> float | None:
        """One figure; None where the paper has none."""
        if metric not in self.rows or method not in METHODS:
            return None
        return self.rows[metric][METHODS.index(method)]


SETS = (
    Printed(
        "Airline Itinerary",
        33951,
        17,
        {  # the paper calls them P@1 and P@5: with one chosen candidate per query they are hits
            "hit@1": (0.2833, 0.2618, 0.2562, 0.2327, 0.2749, 0.2762, 0.2694),
            "hit@5": (0.6958, 0.6586, 0.6651, 0.6239, 0.6613, 0.6803, 0.6724),
        },
    ),
    Printed(
        "Microsoft 30k",
        31531,
        136,
        {
            "ndcg@1": (0.5447, 0.4938, 0.4973, 0.4800, 0.5287, 0.5359, 0.5139),
            "ndcg@3": (0.5313, 0.4827, 0.4811, 0.4766, 0.5127, 0.5294, 0.4970),
            "ndcg@5": (0.5368, 0.4904, 0.4892, 0.4842, 0.5230, 0.5347, 0.5030),
            "ndcg@10": (0.5564, 0.5093, 0.5135, 0.5061, 0.5459, 0.5538, 0.5229),
            "ndcg@50": (0.6482, 0.6127, 0.6146, 0.6092, 0.6363, 0.6438, 0.6331),
        },
    ),
    Printed(
        "Istella-S",
        33018,
        220,
        {
            "ndcg@1": (0.7023, 0.6762, 0.6873, 0.6644, 0.6966, 0.6982, 0.6837),
            "ndcg@3": (0.6696, 0.6552, 0.6537, 0.6378, 0.6654, 0.6672, 0.6628),
            "ndcg@5": (0.6953, 0.6846, 0.6831, 0.6741, 0.6936, 0.6931, 0.6923),
            "ndcg@10": (0.7645, 0.7558, 0.7566, 0.7456, 0.7622, 0.7637, 0.7602),
        },
    ),
)


def recognised(queries: int, features: int) -> Printed | None:
    """The paper's set that data of this size are; None for all others."""
    for known in SETS:
        if features == known.features and abs(queries - known.queries) <= NEAR * known.queries:
            return known
    return None
