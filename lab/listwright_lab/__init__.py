"""The laboratory: suites, recipes and rivals of the papers, and the studies behind the documentation's figures."""
