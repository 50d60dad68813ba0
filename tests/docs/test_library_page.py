"""What ``docs/library.md`` shows runs, and the messages that it quotes are those of the code."""

import re
from pathlib import Path

from listwright.ranking import bundle

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


def test_every_error_of_the_table_is_tested():
    """Each message quoted as an error stands in a test that sees it raised."""
    tests = "".join(
        path.read_text(encoding="utf-8")
        for name in (
            "recipes/test_bad_input.py",
            "recipes/test_library.py",
            "recipes/test_own_tables.py",
            "unit/training/data/test_memory.py",
        )
        for path in [ROOT / "tests" / name]
    )
    table = PAGE.split("## What odd data mean")[1]
    quoted = re.findall(r"error[^`|]*: `([^`]+)`", table)
    assert len(quoted) == 10
    for message in quoted:
        heart = re.sub(r"^line \d+(, column \w+)?: |\(18 queries.*|; found.*", "", message).strip()
        assert heart in tests, heart
