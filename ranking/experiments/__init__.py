"""Experiments on traffic: what is shown to whom, as functions of ids and of a salt."""
