"""Data beyond memory: matrices whose rows are read on access, folders of shards, and hidden job folders."""
