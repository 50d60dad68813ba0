"""Several serving processes behind one listening socket: supervisor, worker, heartbeat, metrics of all."""
