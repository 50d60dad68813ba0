"""Recipes: their tables as frozen values, and the command-line options that change them."""
