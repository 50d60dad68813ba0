"""Real replicas on this machine, and what they take for lists."""
