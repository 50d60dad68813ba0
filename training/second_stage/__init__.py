"""The second stage: batches, the training loop of every network, and the search for its hyperparameters."""
