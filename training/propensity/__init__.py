"""Position bias: how likely a shown place is looked at, from swaps or from what several rankers showed."""
