"""The endpoints, and the pipeline of a ranking request: from its body to its answer."""
