"""What training data show that new lists do not have: the findings that are told before a fit, and their evidence."""
