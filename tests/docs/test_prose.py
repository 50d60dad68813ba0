"""A sentence of the pages has at most 25 words, and a line of their prose at most 128 characters."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
MOST_WORDS, MOST_CHARACTERS = 25, 128
ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,2}\.)\s+")
ABBREVIATION = re.compile(r"(?:e\.g|i\.e|cf|vs|al|eqs?|figs?|sec|vol|v)\.", re.IGNORECASE)
"""These end no sentence. File names, versions and decimals have no blank behind their dots, and so end none either."""


def prose(text):
    """The lines of a page; empty ones in place of comments, code, tables and headings."""
    code = False
    for line in re.sub(
        r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL
    ).splitlines():
        fence = line.lstrip().startswith("```")
        yield "" if code or fence or line.startswith(("|", "#", "    ")) else line
        code ^= fence


def sentences(text):
    """The sentences of paragraphs and list items. A code span is one word, and a link is its text."""
    paragraphs = [""]
    for line in prose(text):
        if not line.strip() or ITEM.match(line):
            paragraphs.append("")
        paragraphs[-1] += ITEM.sub("", line, count=1).strip() + " "
    for paragraph in paragraphs:
        spans = re.sub(r"(`+).+?\1", lambda span: span[0].replace(" ", "_"), paragraph)
        sentence = []
        for word in re.sub(r"!?\[([^][]*)\]\([^()]*\)", r"\1", spans).split():
            sentence.append(word)
            bare = word.strip("()[]*\"'“”")
            if bare.endswith((".", ":", ";", "?", "!")) and not ABBREVIATION.fullmatch(bare):
                yield " ".join(sentence)
                sentence = []
        if sentence:
            yield " ".join(sentence)


def words(sentence):
    """How many words a sentence has; dashes and signs such as "+" and "=" are none."""
    return sum(bool(re.search(r"[\w`]", word)) for word in sentence.split())


@pytest.mark.parametrize("name", NAMES)
def test_sentences_are_short(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    long = [f"{words(sentence)} words: {sentence}" for sentence in sentences(text) if words(sentence) > MOST_WORDS]
    assert not long, f"{name}: split what has more than {MOST_WORDS} words:\n" + "\n".join(long)


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_wrapped(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    long = [f"{name}:{at}" for at, line in enumerate(prose(text), start=1) if len(line) > MOST_CHARACTERS]
    assert not long, f"wrap at {MOST_CHARACTERS} characters: {', '.join(long)}"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("One two. Three: four; five? Six!", [2, 1, 1, 1, 1]),
        ("One two\nthree.\n\nFour", [3, 1]),
        ("Do:\n- one two\n  three\n- four\n1. five. Six", [1, 3, 1, 1, 1]),
        ("In `a b. c d` of [two words](x.md#y-z), **bold.** Next", [6, 1]),
        ("See eq. (3), e.g. of v. 2 in pages.md, 0.5 s.", [11]),
        ("(One two.) Three (four); five", [2, 2, 1]),
        ("a = b + c – d", [4]),
        ("# A heading\n\nOne.\n```\ncode of five words here\n```\n| a | table |\n\n    f = m a\n\nTwo three", [1, 2]),
        ("One <!-- figures:\nbegin --> two", [2]),
    ],
)
def test_the_probe_counts_words(text, counts):
    assert [words(sentence) for sentence in sentences(text)] == counts
