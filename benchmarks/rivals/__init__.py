"""Other people's servers on the files of one bundle, and ours: who carries how much, at what latency."""
