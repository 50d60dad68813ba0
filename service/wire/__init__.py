"""How requests and answers travel: schemas, JSON, ``.npy``, the Open Inference Protocol."""
