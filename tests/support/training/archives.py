"""Small LETOR sets in the packings that publishers choose, and how to read them."""

import io
import tarfile
import zipfile

import numpy as np

from listwright.training.data.letor.layout import load
from listwright.training.recipe.data import LetorData


def text(*qids, wide=2):
    """Two candidates for each query; the first feature is the query's own number."""
    return "".join(f"{label} qid:{q} 1:{q} {wide}:{label}.5\n" for q in qids for label in (1, 0)).encode()


def folds(prefix="", names=("train", "vali", "test")):
    """Five folds of ten queries: test on 2k - 1 and 2k, validate on the next two."""
    files = {}
    for k in range(1, 6):
        test = [2 * k - 1, 2 * k]
        valid = [q % 10 + 1 for q in (2 * k, 2 * k + 1)]
        train = [q for q in range(1, 11) if q not in (*test, *valid)]
        for name, qids in zip(names, (train, valid, test), strict=True):
            files[f"{prefix}Fold{k}/{name}.txt"] = text(*qids)
    return files


def as_folder(files, path):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def as_zip(files, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def as_tar(files, path, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


PACKERS = {
    "folder": lambda files, path: as_folder(files, path / "set"),
    "zip": lambda files, path: as_zip(files, path / "set.zip"),
    "tar.gz": lambda files, path: as_tar(files, path / "set.tar.gz"),
    "tar": lambda files, path: as_tar(files, path / "set.tar", "w"),
    "zip without its ending": lambda files, path: as_zip(files, path / "download"),
}


def splits_of(*sources, fold=1, seed=0, **spec):
    rng = np.random.default_rng(seed)
    return load(LetorData(**spec), [str(source) for source in sources], fold=fold, rng=rng)
