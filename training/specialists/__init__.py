"""The Specialized Rankers Model: K rankers found by EM, and how a run fits them with their router."""
