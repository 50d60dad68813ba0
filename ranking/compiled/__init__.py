"""What is compiled by Cython, and what prepares its arrays. Without a C compiler LightGBM and NumPy do the same.

Forests are checked against LightGBM when a bundle is loaded, list-relative columns against NumPy at their first use.
"""
