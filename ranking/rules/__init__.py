"""Rules of a merchandiser on top of a ranker: their form, and their effect on a ranked list."""
