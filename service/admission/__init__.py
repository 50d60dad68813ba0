"""Who is worked for and who has to come back later: slots, bodies, early refusals, readiness."""
