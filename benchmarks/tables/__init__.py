"""Fifteen public tables of lists, and what an afternoon's LightGBM and a default fit make of them."""
