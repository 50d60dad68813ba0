"""Replicas behind a balancer, simulated: arrivals, balancers, and what one worker costs."""
