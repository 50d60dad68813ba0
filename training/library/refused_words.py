"""Words that other rankers' ``fit`` takes: each is refused by its name, with what to say instead."""

from __future__ import annotations

from collections.abc import Iterable

from listwright.ranking.errors import RecipeError

_GROUP = (
    "say with qid which query each row belongs to, one id per row; from sizes: np.repeat(np.arange(len(sizes)), sizes)"
)
_WEIGHT = "say with sample_weight how much each row counts; a query counts as the mean of its rows"
_HELD_OUT = (
    "fit holds queries out itself, in parts=; for a split of your own, listwright fit takes "
    "--data train=FILE valid=FILE test=FILE"
)
_START = (
    "scores of another model go in as a column of X; as the first stage, listwright fit takes --first-stage-column COL"
)
_CATEGORIES = "name these columns with categorical=, a parameter of Qilcm"
_PATIENCE = "training stops by itself, see patience= and max_trees=, parameters of Qilcm"

_INSTEAD = {
    **dict.fromkeys(("group", "groups", "group_id"), _GROUP),
    "group_weight": _WEIGHT,
    **dict.fromkeys(("init_score", "base_margin"), _START),
    **dict.fromkeys(("categorical_feature", "cat_features"), _CATEGORIES),
    **dict.fromkeys(("callbacks", "early_stopping_rounds"), _PATIENCE),
}


def refuse(method: str, words: Iterable[str]) -> None:
    """Raise for the first of the words, if there is any.

    Args:
        method: whose words they are, as in ``fit``.
        words: keywords that it does not take.

    Raises:
        RecipeError: for a word of LightGBM's, XGBoost's or CatBoost's rankers; says what to do instead.
        TypeError: for any other, as Python does.
    """
    for word in words:
        instead = _HELD_OUT if word.startswith("eval_") else _INSTEAD.get(word)
        if instead is None:
            raise TypeError(f"Qilcm.{method}() got an unexpected keyword argument {word!r}")
        raise RecipeError(f"Qilcm.{method} does not take {word}: {instead}")
