"""Which specialist ranks a list that nobody has judged, and how unlike the training queries it is."""
