"""What ``auto`` means: which ranker the training queries speak for, less what the test split shows to harm."""
