"""The trainer: real data in, a sealed bundle out.

``python -m training.fit --help`` starts here; so does ``training.Qilcm(...).fit(X, y, qid)``, see ``docs/library.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.estimator import Qilcm

__all__ = ["Qilcm"]


def __getattr__(name: str) -> Any:
    """Load the estimator, and scikit-learn, when it is asked for: importing the package stays cheap."""
    if name in __all__:
        from training import estimator  # noqa: PLC0415

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
