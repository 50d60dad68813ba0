"""Small data, in order or odd, by every way into a fit: LETOR text, a table, the library."""

from collections import namedtuple

import numpy as np
import pandas as pd

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.errors import DataError
from listwright.training.commands import fit

RECIPE = """
name = "odd"
about = "x"
minutes = 0
[data]
kind = "{kind}"
drop_constant = {drop_constant}
[first_stage]
kind = "lambdamart"
trials = 1
max_trees = 5
folds = 2
[model]
kind = "qilcm"
encoder_width = 4
hidden = [4]
max_epochs = 1
"""
SMALL = {"encoder_width": 4, "hidden": (4,), "max_epochs": 1, "trials": 1, "max_trees": 5, "folds": 2}
SOURCES = ("letor", "table", "library")
NAN = float("nan")
Row = namedtuple("Row", "qid label first second")


def rows(queries=30, length=4):
    """One relevant candidate per query, which the first feature gives away."""
    rng = np.random.default_rng(0)
    return [
        Row(f"q{q}", int(n == q % length), float(rng.normal() + 2 * (n == q % length)), float(rng.normal()))
        for q in range(queries)
        for n in range(length)
    ]


def written(kind, data, folder):
    """The data as a file, and the options that read it."""
    path = folder / f"{kind}.txt"
    if kind == "letor":
        path.write_text("".join(f"{row.label} qid:{row.qid} 1:{row.first} 2:{row.second}\n" for row in data))
        return path, ()
    path.write_text(pd.DataFrame(data).to_csv(index=False))
    return path, ("--qid", "qid", "--label", "label")


def recipe_of(kind, folder, drop_constant=True):
    path = folder / f"{kind}.toml"
    path.write_text(RECIPE.format(kind=kind, drop_constant=str(drop_constant).lower()))
    return path


def fit_by(source, data, folder, capsys, drop_constant=True):
    """The bundle, or what the one who asked for it is told."""
    out = folder / "odd" / "1"
    if source == "library":
        frame = pd.DataFrame(data)
        try:
            model = training.Qilcm(**SMALL, drop_constant=drop_constant).fit(
                frame[["first", "second"]], frame["label"], frame["qid"]
            )
        except DataError as error:
            return str(error)
        return bundle.load(model.save(out))
    path, columns = written(source, data, folder)
    code = fit.main([str(recipe_of(source, folder, drop_constant)), "--data", str(path), *columns, "--out", str(out)])
    said = " ".join(capsys.readouterr().out.split())
    assert code == ("error:" in said)
    return said if code else bundle.load(out)
