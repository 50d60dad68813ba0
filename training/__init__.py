"""The trainer: real data in, a sealed bundle out.

``listwright fit --help`` starts here. So does ``listwright.training.Qilcm(...).fit(X, y, qid)``
(``docs/library.md``). ``docs/architecture.md`` has the modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from listwright.exports import on_demand

if TYPE_CHECKING:
    from listwright.training.estimator import Qilcm

__all__ = ["Qilcm"]

__getattr__ = on_demand(__name__, {"Qilcm": "estimator"}, extra="training")
