"""Rows and figures of live traffic: joined logs, comparisons, propensities, estimates."""
