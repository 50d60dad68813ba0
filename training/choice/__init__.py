"""What ``auto`` means: which ranker is chosen, by queries that are not test queries."""
