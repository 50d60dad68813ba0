"""The kernel: the words, the numbers, the bundle format, and the only code that ever scores.

Data flows one way::

    errors  candidates  order  features  metrics      values and pure functions
        manifest -> first_stage, scorers -> bundle -> reranker

``training`` writes bundles with it and ``service`` reads them; neither knows the other.

``docs/glossary.md`` has the words, and the shape letters of docstrings and annotations.
"""
