"""What was tried on top of a LightGBM with list-relative columns, and what each attempt is worth on every set."""
