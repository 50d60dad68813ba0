"""Listwise reranking in production: fit a bundle, serve it, verify it.

=============================  =====================================================================
:mod:`listwright.ranking`      candidates, features, metrics, the bundle, and the only code that scores
:mod:`listwright.training`     from data to a bundle; the scikit-learn estimator; losses for torch
:mod:`listwright.service`      answers ``POST /rerank`` from a bundle
:mod:`listwright.command`      ``listwright fit``, ``listwright serve`` and the others
=============================  =====================================================================

In a checkout the three folders ``ranking``, ``training`` and ``service`` stand at the top, and this folder links to
them; ``docs/decisions/0007-one-package.md`` tells why.
"""

import os as _os

_os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # else ONNX Runtime keeps a file in the home folder, to send it to its maker
