"""The glossary has every shape letter that annotations use, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ANNOTATION = re.compile(r'(?:Float|Int|Bool|UInt8?|Shaped|Real|Num)\[[\w.]+(?: \| [\w.]+)*,\s*"([^"]*)"\]')
LETTER = re.compile(r"(?<![\w*])[A-Za-z](?!\w)")


def letters_of(text):
    """Single letters of the shapes in annotations."""
    return {letter for shape in ANNOTATION.findall(text) for letter in LETTER.findall(shape)}


def used():
    files = [
        path for package in ("ranking", "service", "training", "client") for path in (ROOT / package).rglob("*.py")
    ]
    return set().union(*(letters_of(path.read_text(encoding="utf-8")) for path in files))


PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Shape letters")[2]
USUAL = PAGE.partition("In these modules")[0]


def letters_in(rows):
    return [letter for row in rows for letter in row.split(", ")]


def test_the_probe_reads_shapes():
    assert letters_of('a: Float[np.ndarray, "L D"], b: Int[Tensor, " N+1"], c: Float[Tensor, "*batch H"]') == set(
        "LDNH"
    )


def test_every_letter_has_one_usual_length():
    letters = letters_in(re.findall(r"^\| ([A-Za-z](?:, [A-Za-z])*) \|", USUAL, flags=re.M))
    assert len(letters) == len(set(letters))
    assert set(letters) == used()
