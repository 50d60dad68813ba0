"""The site of docs/: every page has a way to it, the build is strict, and the result needs no other host."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from listwright.command import COMMANDS
from listwright.service.app import create_app
from listwright.service.settings import PREFIX, Settings
from listwright.training.recipe import config
from support.pages.browsing import chromium
from support.pages.site import mkdocs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
MADE = ("reference/", "files/")
"""Folders of pages that the build makes."""
PACKAGES = ("listwright.ranking", "listwright.training", "listwright.training.losses", "listwright_client")
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>|url\([\"']?(?:https?:)?//[^)]*\)"
)
"""What a browser fetches from another host without being asked."""
CODE = re.compile(r"<(pre|code|script|style)\b.*?</\1>", re.DOTALL)


def paths(nav):
    """Every page that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    return [path for part in (nav.values() if isinstance(nav, dict) else nav) for path in paths(part)]


def page(site, name):
    return (site / "reference" / f"{name}.html").read_text(encoding="utf-8")


def test_the_navigation_names_every_page_once():
    named = [path for path in paths(CONFIG["nav"]) if not path.startswith(MADE)]
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"index.md": "[gone](gone.md)"}, "gone.md"),
        ({"index.md": "[no such part](#gone)"}, "#gone"),
        ({"index.md": "[a folder](part)", "part/index.md": "x"}, "'part'"),
        ({"index.md": "x", "alone.md": "x"}, "alone.md"),
    ],
    ids=["link", "anchor", "folder", "page without a way to it"],
)
def test_a_dead_end_fails_the_build(tmp_path, files, complaint):
    for name, text in files.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    nav = ["index.md", *(["part/index.md"] if "part/index.md" in files else [])]
    small = {"site_name": "small", "nav": nav, "validation": CONFIG["validation"], "plugins": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(small), encoding="utf-8")
    done = mkdocs(folder=tmp_path)
    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.nightly
def test_the_reference_is_complete(site):
    commands = page(site, "commands")
    for name in COMMANDS:
        assert f'id="{name}"' in commands
    settings = page(site, "settings")
    for name in Settings.model_fields:
        assert f"<code>{PREFIX}{name.upper()}</code>" in settings
    metrics = page(site, "metrics")
    for family in create_app(Settings(bundle=site)).service.telemetry.registry.collect():
        assert f"<code>{family.name}{'_total' if family.type == 'counter' else ''}</code>" in metrics
    assert "<code>stage_reached</code>" in metrics
    http = page(site, "http")
    contract = yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))
    for methods in contract["paths"].values():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in http
    for schema in contract["components"]["schemas"]:
        assert f'id="schema-{schema.lower()}"' in http
    recipes = page(site, "recipes")
    for name in config.recipe_names():
        assert f'id="{name}"' in recipes
    for package in PACKAGES:
        for name in import_module(package).__all__:
            assert f'id="{package}.{name}"' in page(site, package), f"{package}.{name}"


@pytest.mark.nightly
def test_every_table_is_drawn_as_one(site):
    """A table without an empty line above it stays text."""
    drawn = [
        (path.name, line)
        for path in site.rglob("*.html")
        for line in re.sub(r"<[^>]+>", "\n", CODE.sub("", path.read_text(encoding="utf-8"))).splitlines()
        if line.startswith("|")
    ]
    assert drawn == []


@pytest.mark.nightly
def test_options_stand_with_their_help(site):
    commands = page(site, "commands")
    assert "<code>--data PATH [PATH ...]</code>" in commands
    assert "<code>--device DEVICE</code>" in commands
    assert "%(default)" not in commands


@pytest.mark.nightly
def test_links_that_leave_the_pages_reach_copies(site):
    for name in ("openapi.yaml", "benchmarks/results/rivals.svg", "benchmarks/results/service.json"):
        assert (site / "files" / name).read_bytes() == (ROOT / name).read_bytes()
    assert 'href="files/openapi.yaml"' in (site / "operations.html").read_text(encoding="utf-8")
    assert 'href="files/benchmarks/results/index.html"' in (site / "results.html").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_nothing_is_loaded_from_another_host(site):
    found = {
        f"{path.name}: {one[0]}"
        for path in site.rglob("*")
        if path.suffix in (".html", ".css")
        for one in LOADED.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.nightly
def test_search_works_from_the_disk(site):
    complaints = []
    with chromium() as browser:
        opened = browser.new_page()
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on(
            "request", lambda one: complaints.append(one.url) if one.url.startswith(("http:", "https:", "//")) else None
        )
        opened.goto((site / "index.html").as_uri())
        opened.click(".md-search__input")
        opened.keyboard.type("LISTWRIGHT_HOOK_BUDGET_MS")
        opened.wait_for_selector(".md-search-result__link", timeout=30_000)
        links = [link.get_attribute("href") for link in opened.locator(".md-search-result__link").all()]
    assert complaints == []
    assert any("reference/settings.html" in link for link in links)
    assert not any("files/" in link for link in links)


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_window_in_the_readers_scheme(site, width, scheme):
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        for name in ("index", "tutorials/own-table", "reference/commands", "reference/http", "reference/settings"):
            opened.goto((site / f"{name}.html").as_uri())
            opened.wait_for_selector(f'[data-md-color-scheme="{"slate" if scheme == "dark" else "default"}"]')
            assert opened.evaluate("document.documentElement.scrollWidth") <= width, name
