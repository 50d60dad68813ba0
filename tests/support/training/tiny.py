"""A recipe that is fitted in seconds."""

TINY = """
name = "tiny"
about = "small enough for a test"
minutes = 0
[data]
kind = "synthetic"
queries = 60
min_length = 1
max_length = 12
numeric = 4
categorical = 1
categories = 3
[first_stage]
kind = "lambdamart"
trials = 2
max_trees = 20
folds = 3
[model]
kind = "qilcm"
encoder_width = 8
hidden = [8]
max_epochs = 3
cutoff = 6
"""

SPECIALISED = (
    TINY.replace('"tiny"', '"specialised"').replace(
        "queries = 60", "queries = 100\ngroups = 2\nshift = 0.0\nobservable = 1.0"
    )
    + """
[specialists]
specialists = 2
restarts = 2
max_iterations = 10
[router]
folds = 2
trees = 10
"""
)
