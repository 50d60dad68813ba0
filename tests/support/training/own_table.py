"""Columns of the tables that tests of tables write."""

from listwright.training.recipe.data import TableData

SPEC = TableData(qid="q", label="y")
