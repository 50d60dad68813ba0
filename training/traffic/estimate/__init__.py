"""Bundles valued on logged lists, without traffic of their own."""
