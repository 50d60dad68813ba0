"""Admission of requests: slots, bodies, early refusals, throttling."""
