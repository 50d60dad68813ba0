"""Why a candidate stands where it stands: contributions, changes that would lift it, who moves without it."""
