import numpy as np
from jaxtyping import Float, Shaped, UInt32

def score(
    features: Float[np.ndarray, "L D"],
    columns: Shaped[np.ndarray, " E"],
    nodes: Shaped[np.ndarray, " N"],
    trees: Shaped[np.ndarray, " T"],
    sets: UInt32[np.ndarray, " S"],
    values: Float[np.ndarray, " N"],
    scores: Float[np.ndarray, " L"],
) -> None: ...
