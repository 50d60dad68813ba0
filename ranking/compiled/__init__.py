"""What is compiled by Cython, and what does the same where there is no C compiler.

Forests and linear rankers are checked against LightGBM or their ONNX graphs when a bundle is loaded. List-relative
columns are checked against NumPy at their first use.
"""
