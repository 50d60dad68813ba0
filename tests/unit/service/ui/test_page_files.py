"""The page's files: what is served of them, how they read, and that its libraries are the recorded ones."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from fastapi import HTTPException, Request

from listwright.service.ui import routes

ROOT = Path(__file__).resolve().parents[4]
OWN = [path for path in routes.STATIC.rglob("*") if path.is_file() and path.parent.name != "vendor"]
SCRIPTS = [path for path in OWN if path.suffix == ".js"]


@pytest.fixture(scope="module")
def libraries():
    """The script that fetches the libraries and records them."""
    spec = importlib.util.spec_from_file_location("page_libraries", ROOT / "tools" / "page_libraries.py")
    tool = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tool
    spec.loader.exec_module(tool)
    return tool


def asked(**headers):
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/ui/", "headers": sent})


def test_the_page_is_served_with_its_headers():
    found = routes._answer_file(routes.read_files(), "", asked())
    assert found.status_code == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["content-security-policy"] == routes.POLICY
    assert found.headers["cache-control"] == "no-cache"
    assert found.body == (routes.STATIC / "index.html").read_bytes()


def test_who_has_a_file_is_not_sent_it_again():
    served = routes.read_files()
    etag = served["main.js"].etag
    for sent in (etag, f"W/{etag}", f'"other", {etag}'):
        found = routes._answer_file(served, "main.js", asked(if_none_match=sent))
        assert (found.status_code, found.body, found.headers["etag"]) == (304, b"", etag)
    assert routes._answer_file(served, "main.js", asked(if_none_match='"other"')).status_code == 200


def test_two_files_have_two_tags_and_a_change_another(tmp_path):
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "b.js").write_text("2")
    before = routes.read_files(tmp_path)
    assert before["a.js"].etag != before["b.js"].etag
    (tmp_path / "a.js").write_text("3")
    assert routes.read_files(tmp_path)["a.js"].etag not in {before["a.js"].etag, before["b.js"].etag}


@pytest.mark.parametrize("name", ["nothing.js", "../__init__.py", "../../settings.py", "/etc/passwd", "styles", "try/"])
def test_nothing_else_is_served(name):
    with pytest.raises(HTTPException) as raised:
        routes._answer_file(routes.read_files(), name, asked())
    assert raised.value.status_code == 404


def test_only_known_kinds_are_read(tmp_path):
    for name in ("a.js", "b.py", ".env", "c.js.map"):
        (tmp_path / name).write_text("x")
    assert set(routes.read_files(tmp_path)) == {"a.js"}


def test_the_libraries_are_the_recorded_ones(libraries):
    assert libraries.faults() == []


@pytest.mark.parametrize("name", ["preact.js", "preact-hooks.js", "uplot.css", "htm-LICENSE.txt"])
def test_a_changed_library_is_noticed(libraries, tmp_path, name):
    folder = tmp_path / "vendor"
    folder.mkdir()
    for path in libraries.VENDOR.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with (folder / name).open("a") as file:
        file.write(" ")
    assert [fault for fault in libraries.faults(folder) if fault.startswith(name)]
    (folder / name).unlink()
    assert f"{name} is not there" in libraries.faults(folder)
    (folder / "more.js").write_text("x")
    assert "more.js is not in the record" in libraries.faults(folder)


def test_each_library_has_its_licence(libraries):
    packages = {one.package for one in libraries.read_record()}
    assert packages == set(libraries.VERSIONS)
    for package in packages:
        assert "licen" in (libraries.VENDOR / f"{package}-LICENSE.txt").read_text().lower()
    assert {one.licence for one in libraries.read_record()} <= {"MIT", "Apache-2.0"}


def test_nothing_is_inline_and_nothing_comes_from_elsewhere():
    index = (routes.STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\bsrc=)", index)
    for path in OWN:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "").replace("<//>", "")
        assert "//" not in re.sub(r"(^|\s)//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL), path


def test_no_text_becomes_markup_or_code_and_imports_are_files_of_the_page():
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|dangerouslySet", text
        ), path
        for imported in re.findall(r'(?:\bfrom |\bimport\()"([^"]+)"', text):
            assert (path.parent / imported).resolve().is_relative_to(routes.STATIC)
            assert (path.parent / imported).is_file(), imported
