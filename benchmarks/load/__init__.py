"""How the service behaves under load, beside floods, and while it changes; what drives and measures that."""
