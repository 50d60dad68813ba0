"""How many replicas a load needs: measured service times, a simulation of many replicas, and what it costs."""
