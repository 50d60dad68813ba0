"""Formats of requests and answers: schemas, JSON, ``.npy``, the Open Inference Protocol."""
