"""What is compiled by Cython, and the Python and NumPy that does the same where there is no C compiler.

Each compiled part is checked against its twin when it is loaded.
"""
