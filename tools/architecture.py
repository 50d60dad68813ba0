"""Write the module tables of ``docs/architecture.md`` from the first lines of the modules' docstrings.

usage: python tools/architecture.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
TABLE = re.compile(r"(<!-- modules of (?P<folder>[\w/]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the page with tables of today's modules."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """Return the page's text, each of its tables written anew."""
    return TABLE.sub(lambda match: match[1] + _table(ROOT / match["folder"]) + match[3], text)


def _table(folder: Path) -> str:
    """Return one row per module and folder of a package, with the first line of its docstring."""
    modules = [path for path in sorted(folder.iterdir()) if _source(path).is_file() and path.name != "__init__.py"]
    rows = [f"| `{path.name}{'/' if path.is_dir() else ''}` | {_summary(_source(path))} |" for path in modules]
    return "\n".join(["| module | holds |", "|---|---|", *rows, ""])


def _source(path: Path) -> Path:
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _summary(source: Path) -> str:
    """Return the first line of a module's docstring without its full stop, in the page's Markdown."""
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert text, f"{source} has no docstring"
    line = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.partition("\n")[0]).replace("``", "`").removesuffix(".")
    return line.replace("|", "\\|")


if __name__ == "__main__":
    main()
