"""What ``auto`` means: which ranker the training queries speak for, less what the validation queries speak against."""
