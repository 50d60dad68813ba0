"""The kernel: the words, the numbers, the bundle format, and the only code that ever scores.

Data flows one way::

    errors  candidates  order  features  metrics      values and pure functions
        manifest -> first_stage, scorers -> bundle -> reranker

``training`` writes bundles with it and ``service`` reads them; neither knows the other.

Shape letters, used in every docstring and annotation: ``B`` lists in a batch, ``L`` list length, ``C``
cutoff (candidates that the second stage scores), ``D`` features, ``H`` hidden width, ``N`` queries.
"""
