"""The networks that rerank, as torch modules, from raw features to one score per candidate."""
