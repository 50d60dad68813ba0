"""Data beyond memory: matrices whose rows are read on access, and folders of shards."""
