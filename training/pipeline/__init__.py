"""A fit from the data to the published bundle: its steps, the choice of the default, the time, the search."""
