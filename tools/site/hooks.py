"""Hooks of MkDocs: pages made from the code join the site, and links that leave ``docs/`` reach copies within it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from commands import commands
from http_page import http
from library_pages import PACKAGES, package, recipes
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from ranker_page import FOLDER, PAGE, fill_page, ranker_files
from service_pages import metrics, settings
from tables import page, table

ROOT = Path(__file__).resolve().parents[2]
COPIES = "files"
"""Folder of the site with copies of what stands outside ``docs/``, by their paths in the repository."""

GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/settings.md": settings,
    "reference/metrics.md": metrics,
    "reference/http.md": lambda: http(ROOT / "openapi.yaml"),
    "reference/recipes.md": lambda: recipes(ROOT / "training" / "recipes", ROOT / "lab" / "listwright_lab" / "recipes"),
    **{f"reference/{name}.md": partial(package, name) for name in PACKAGES},
}
_NOT_SEARCHED = "---\nsearch: {exclude: true}\n---\n\n"
_LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]*)")
_ROLE = re.compile(r":(?:class|func|mod|data|meth|attr|exc):<code>~?")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, the ranker of the demo, and copies of all that a page outside them links to."""
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    for path, content in ranker_files().items():
        files.append(File.generated(config, path, content=content))
    targets = {
        target for file in files.documentation_pages() for _, target in _outward(file.src_uri, file.content_string)
    }
    for target in sorted(targets):
        source = ROOT / target
        if source.is_dir():
            inside = sorted(path for path in source.rglob("*") if path.is_file())
            files.append(File.generated(config, f"{COPIES}/{target}/index.md", content=_listing(source, inside)))
        else:
            inside = [source]
        for original in inside:
            copy = f"{COPIES}/{original.relative_to(ROOT).as_posix()}"
            if original.is_file() and files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(original)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn each link that leaves ``docs/`` to the copy; without one it stays, and the strict build names it."""
    here = posixpath.dirname(page.file.src_uri)
    for link, target in _outward(page.file.src_uri, markdown):
        copy = f"{COPIES}/{target}/index.md" if (ROOT / target).is_dir() else f"{COPIES}/{target}"
        if files.get_file_from_path(copy) is not None:
            markdown = markdown.replace(f"]({link}", f"]({posixpath.relpath(copy, here or '.')}")
    if page.file.src_uri == PAGE:
        return fill_page(markdown, has_ranker=files.get_file_from_path(f"{FOLDER}/index.html") is not None)
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Replace Sphinx's roles in docstrings by the names that they mark."""
    return _ROLE.sub("<code>", html)


def _outward(path: str, markdown: str) -> Iterator[tuple[str, str]]:
    """Yield the links of a page that leave ``docs/``, each with its path in the repository."""
    for link in dict.fromkeys(match[2] for match in _LINK.finditer(markdown)):
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), link))
        if not target.startswith(("docs/", "..")):
            yield link, target


def _listing(folder: Path, inside: list[Path]) -> str:
    rows = [
        [f"[{name}]({name})", f"{path.stat().st_size / 1000:,.0f} kB"]
        for path in inside
        for name in [path.relative_to(folder).as_posix()]
    ]
    return _NOT_SEARCHED + page(
        f"Files of {folder.relative_to(ROOT).as_posix()}",
        "After this page you can open each file that the other pages are made from.",
        table(["file", "size"], rows),
    )
