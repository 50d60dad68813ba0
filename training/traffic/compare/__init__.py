"""Two rankers on traffic: which one people prefer, with intervals that allow a look every day."""
