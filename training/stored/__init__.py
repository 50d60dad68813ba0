"""Data that do not fit into memory: matrices whose rows are read when they are asked for, and folders of shards."""
