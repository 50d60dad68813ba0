"""Data that are made up: lists with a planted truth, and sets of any size in a stream."""
