"""Why a candidate stands where it stands: contributions of features, changes that would lift it, who moves without it."""
