"""Suites ``table2``, ``table3``, ``anomaly`` and ``lambda``: listwise rankers side by side, over seeds and folds."""
