"""``docs/architecture.md`` names the steps of a run as the code does, and files that are there."""

import re

import pytest

from support.pages.figure_blocks import ROOT, page

PAGE = page("docs/architecture.md")
PATHS = sorted(set(re.findall(r"`((?:ranking|service|training|client|tests|docs)/[\w./]+)`", PAGE)))


def section(heading):
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_a_fit_has_the_steps_of_the_code():
    before, after = page("training/run.py").split("fitting.fit(context, watch")
    code = before + page("training/steps/fitting.py") + after
    named = list(dict.fromkeys(re.findall(r'watch\.step\("([^"]+)"\)', code)))
    last = code.index("bundle.seal("), code.index("bundle.publish(")
    assert code.rindex("watch.step(") < last[0] < last[1], "the last step, which has no name of its own"
    shown = re.findall(r"^\| ([a-z][^|]*?) \|", section("A fit"), flags=re.MULTILINE)
    assert shown == ["step", *named, "seal and publish"]


@pytest.mark.parametrize("path", PATHS)
def test_what_it_names_is_there(path):
    assert (ROOT / path).exists()


def test_the_files_of_the_transport_are_there():
    (folder,) = re.findall(r"^\| file of `(.*?)` \|", PAGE, flags=re.MULTILINE)
    files = re.findall(r"^\| `(\w+\.py)` \| ", section("A request"), flags=re.MULTILINE)
    assert len(files) == 5
    assert [name for name in files if not (ROOT / folder / name).exists()] == []
