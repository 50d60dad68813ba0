"""Suites ``oracle`` and ``routing``: what specialists and their router are worth."""
