"""What a fit is likely to find, in a minute: whether a second stage pays on these data."""
