"""Synthetic data: lists with a planted truth, and sets of any size in a stream."""
