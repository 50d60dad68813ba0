"""Work on a Ray cluster, or on this machine's cores, behind one executor. Nothing here imports Ray before ``--on``."""
