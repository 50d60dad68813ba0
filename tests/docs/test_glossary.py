"""The letters of shapes in annotations and docstrings are those of the glossary's one table; any other axis is a word, or a number."""

import ast
import re

from support.pages.figure_blocks import ROOT, page

PAGE = page("docs/glossary.md")
LETTERS = [letter for row in re.findall(r"^\| ([A-Za-z](?:, [A-Za-z])*) \|", PAGE, re.M) for letter in row.split(", ")]
KINDS = re.compile(r"(?:Float|Int|UInt|Bool|Shaped|Real|Num)\d*")
WORD = re.compile(r"[a-z_]{2,}")
TUPLE = re.compile(r"``\(([^()`]*,[^()`]*)\)``")


def shapes_of(source):
    """Shapes in annotations, such as ``L D``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and KINDS.fullmatch(ast.unparse(node.value)):
            _, shape = node.slice.elts
            yield shape.value if isinstance(shape, ast.Constant) else ast.unparse(shape)


def docstring_letters(source):
    """Letters in the shapes of strings, such as ``(N, L)``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for shape in TUPLE.findall(node.value):
                yield from re.findall(r"\b[A-Z]\b", shape)


def unlisted(source):
    """Axes that are neither listed letters, nor words, nor numbers."""
    axes = {
        part
        for shape in (*shapes_of(source), *docstring_letters(source))
        for axis in shape.split()
        for part in axis.lstrip("*").split("+")
    }
    return {axis for axis in axes if axis not in {*LETTERS, "", "_"} and not (WORD.fullmatch(axis) or axis.isdigit())}


def test_a_letter_that_is_not_listed_is_found():
    source = (
        'a: Float[np.ndarray, "L U"]; b: Int32[Tensor, " J+1"]; c: Bool[Tensor, "*batch seeds 2 Rows"]; "``(N, Q)``"'
    )
    assert unlisted(source) == {"U", "Rows", "Q"}


def test_every_letter_has_one_length():
    assert len(LETTERS) == len(set(LETTERS)) > 0


def test_annotations_have_the_letters_of_the_glossary_or_words():
    files = [path for part in ("ranking", "service", "training") for path in (ROOT / part).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): unlisted(path.read_text(encoding="utf-8")) for path in files}
    assert {path: axes for path, axes in found.items() if axes} == {}
