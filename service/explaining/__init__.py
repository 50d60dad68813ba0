"""Explanations: why a candidate stands where it stands. Off unless a setting turns them on.

``explainer`` answers requests in a worker; ``explain_process`` is the process that computes, at the lowest priority.
It is imported only if it is on.
"""
