"""The TypeScript client: its types are the document's, it compiles strictly, and ranks under Node."""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import typescript_types

SOURCE = typescript_types.ROOT / "client" / "typescript"


def test_its_types_are_those_of_the_document():
    """`make openapi` writes them."""
    assert typescript_types.TYPES.read_text(encoding="utf-8") == typescript_types.text()


def test_it_needs_nothing_else_and_has_the_python_clients_version():
    package = json.loads((SOURCE / "package.json").read_text(encoding="utf-8"))
    assert not package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert package["version"] == project["version"]
    assert all(re.fullmatch(r"[\d.]+", version) for version in package["devDependencies"].values())


@pytest.fixture(scope="module")
def package(find, run, tmp_path_factory):
    """The folder of the package, compiled."""
    folder = tmp_path_factory.mktemp("typescript") / "package"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    node, compiler = find("node"), find("tsc")
    (folder / "node_modules").symlink_to(Path(compiler).parents[2])
    run(node, compiler, cwd=folder)
    return folder


@pytest.mark.nightly
def test_its_own_tests_pass_under_node(package, find, run, demo, key, lists):
    env = {**os.environ, "LISTWRIGHT_URL": demo, "LISTWRIGHT_KEY": key, "LISTWRIGHT_LISTS": lists}
    output = run(find("node"), "--test", "--test-reporter=tap", "test/", cwd=package, env=env)
    assert re.search(r"^# fail 0$", output, re.MULTILINE)
    assert re.search(r"^# skipped 0$", output, re.MULTILINE)


@pytest.mark.nightly
def test_its_readme_compiles(package, find, run):
    """With the name and the types that a user of the package gets."""
    (code,) = re.findall(r"```ts\n(.*?)```", (SOURCE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    user = package.parent / "user"
    (user / "node_modules").mkdir(parents=True)
    (user / "node_modules" / "listwright-client").symlink_to(package)
    (user / "node_modules" / "@types").symlink_to(Path(find("tsc")).parents[2] / "@types")
    (user / "package.json").write_text('{"type": "module"}')
    (user / "readme.ts").write_text(code)
    options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--types", "node"]
    run(find("node"), find("tsc"), *options, "readme.ts", cwd=user)


@pytest.mark.nightly
def test_its_package_holds_what_is_compiled_and_no_library(package, find, run):
    (packed,) = json.loads(run(find("npm"), "pack", "--dry-run", "--json", "--ignore-scripts", cwd=package))
    paths = {file["path"] for file in packed["files"]}
    modules = ("client", "errors", "index", "types")
    compiled = {f"dist/{name}.{ending}" for name in modules for ending in ("js", "d.ts")}
    assert paths == {"package.json", "README.md", "LICENSE", *compiled}
