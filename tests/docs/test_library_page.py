"""What ``docs/library.md`` shows runs, and the messages that it quotes are those of the code."""

import re
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.errors import ListwrightError
from recipes.test_bad_input import NAN, SMALL, fit_by, rows

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")


def test_the_example_fits_saves_and_loads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {}
    exec(code, names)
    assert "'metric': 'ndcg@10'" in capsys.readouterr().out
    assert names["scores"].shape == (360,)
    assert names["again"].get_params() == names["model"].get_params()
    assert bundle.load(Path("models/shop/1")).manifest.feature_schema.names == ("price", "carrier")


QUOTED = re.findall(r"error[^`|]*: `([^`]+)`", PAGE.split("## How unusual data are treated")[1])
"""The messages that its table quotes."""

ROWS = rows()
SEVENTH = ROWS[6]


def changed(seventh):
    return [*ROWS[:6], seventh, *ROWS[7:]]


def fitted(data, **options):
    frame = pd.DataFrame(data)
    return training.Qilcm(**SMALL, **options).fit(frame[["first", "second"]], frame["label"], frame["qid"])


def predicted_without_a_column(data):
    fitted(data).predict(pd.DataFrame({"first": [1.0]}), [1])


ODD = (
    ("library", [row._replace(label=0) for row in ROWS]),
    ("library", [row._replace(first=7.0, second=NAN) for row in ROWS]),
    ("table", changed(SEVENTH._replace(label=-1))),
    ("library", rows(4)),
    ("letor", [*ROWS[1:], ROWS[0]]),
    ("library", changed(SEVENTH._replace(qid=None))),
    ("library", [row._replace(second="2024-05-01") for row in ROWS]),
    ("library", changed(SEVENTH._replace(first=float("inf")))),
    (predicted_without_a_column, ROWS),
    (partial(fitted, defaults={"second": "w"}), [row._replace(second="xyz"[row.label]) for row in ROWS]),
)
"""The way in, and the data, in the order of the table."""


@pytest.mark.parametrize(("quoted", "way", "data"), [(quoted, *odd) for quoted, odd in zip(QUOTED, ODD, strict=True)])
def test_every_error_of_the_table_is_the_one_that_is_raised(quoted, way, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    if callable(way):
        with pytest.raises(ListwrightError) as caught:
            way(data)
        said = str(caught.value)
    else:
        said = fit_by(way, data, tmp_path, capsys)
    # the columns on the page have other names
    assert quoted.replace("stops", "second").replace("carrier", "second") in said
