"""The trainer: real data in, a sealed bundle out. ``python -m training.fit --help`` starts here."""
