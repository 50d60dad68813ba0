"""The ten lines of docs/client.md run as they stand, against the bundle that `make serve` serves first."""

import re
from pathlib import Path

import polars as pl
import pytest

from contract.conftest import Process
from listwright_client import call, client, deadline
from support.pages.figure_blocks import blocks, table
from support.waiting import NEVER_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def demo():
    service = Process(
        bundle=ROOT / "models" / "demo" / "1", explain=True, explain_timeout_ms=1000 * NEVER_S
    ).wait_until_ready()
    yield service.url
    service.stop()


BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_the_ten_lines_run(demo, capsys):
    code, *_ = BLOCKS
    assert len([line for line in code.splitlines() if line]) <= 10
    assert ADDRESS in code
    names = {}
    exec(code.replace(ADDRESS, demo), names)
    ranking = names["ranking"]
    assert capsys.readouterr().out.splitlines() == [
        f"{result.rank} {result.id} {result.relevance_score:.3f}" for result in ranking.results
    ]
    assert [result.id for result in ranking.results] == ["abcde"[position] for position in ranking.order[:3]]
    assert names["best"].tolist() == names["features"][ranking.results[0].index].tolist()
    assert not ranking.degraded


def test_so_does_the_frame(demo):
    _, code, _ = BLOCKS
    assert ADDRESS in code
    names = {"Client": client.Client}
    exec(code.replace(ADDRESS, demo), names)
    ranking, offers = names["ranking"], names["offers"]
    assert not ranking.degraded
    assert names["sorted_offers"]["sku"].tolist() == [result.id for result in ranking.results]
    polars = pl.from_dict(offers.drop(columns="sku").to_dict("list"), strict=False)
    with client.Client(demo) as again:
        assert again.rerank(polars).scores.tolist() == ranking.scores.tolist()


def test_so_does_the_explanation(demo, capsys):
    ten_lines, _, code = BLOCKS
    assert ADDRESS in code
    names = {}
    exec((ten_lines + code).replace(ADDRESS, demo), names)
    explained, why = names["explained"], names["why"]
    assert explained.ranking.scores.tolist() == names["ranking"].scores.tolist()
    assert why.candidate.id == "c"
    assert capsys.readouterr().out.splitlines()[3:] == [
        f"{part.feature} = {part.value}: {part.contribution:+.3f}" for part in why.first_stage.contributions[:5]
    ]


def test_so_do_those_of_the_readme(demo):
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert ADDRESS in code
    names = {}
    exec(code.replace(ADDRESS, demo), names)
    with client.Client(demo) as again:
        assert names["best"] is names["rows"][again.rerank(names["rows"]).results[0].index]


def settings():
    """Limits of a call and of its retries."""
    first, longest = call.FIRST_PAUSE_S, call.LONGEST_PAUSE_S
    return table(
        ["limit", "default"],
        [
            ["`timeout` of a call, s", f"{client.Client.__init__.__kwdefaults__['timeout']:g}"],
            ["time left for the way back, ms", f"{deadline.WAY_BACK_S * 1000:g}"],
            ["`retries` of a call", client.Client.__init__.__kwdefaults__["retries"]],
            ["random pause before the first retry, s, at most", f"{first:g}"],
            ["random pause before any retry, s, at most", f"{longest:g}"],
        ],
    )


def test_its_limits_are_those_of_the_code():
    assert blocks(PAGE) == [settings()]
