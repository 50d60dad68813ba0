"""How fast one process is: each figure beside a floor or another implementation."""
