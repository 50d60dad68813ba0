"""Offline scoring: every list of a file through the sealed bundle, part by part."""
