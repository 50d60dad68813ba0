"""One search for hyperparameters in a folder of its own, and the processes that its trials run in."""
