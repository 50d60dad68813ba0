"""Clients that others' generators make of ``openapi.yaml``: each compiles, and ranks the demo's golden lists."""

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = str(ROOT / "openapi.yaml")
PROGRAMS = Path(__file__).parent / "generated"

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def generate(find, run):
    """Run openapi-generator, and return its jar."""

    def generate(generator, folder, *options):
        command = [find("java"), "-jar", find("openapi-generator"), "generate", "-i", DOCUMENT, "-g", generator]
        run(*command, "-o", str(folder), *options)
        return command[2]

    return generate


def test_typescript(generate, find, run, demo, lists, check, tmp_path):
    generate("typescript-fetch", tmp_path / "generated", "--additional-properties=importFileExtension=.js")
    shutil.copy(PROGRAMS / "rank.ts", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    compiler = [find("node"), find("tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
    (tmp_path / "node_modules").symlink_to(Path(find("tsc")).parents[2])
    run(*compiler, "--outDir", "out", "rank.ts", cwd=tmp_path)
    check(run(find("node"), "out/rank.js", demo, lists, cwd=tmp_path))


def test_java(generate, find, run, demo, lists, check, tmp_path):
    """Its libraries are Jackson's, which the generator's jar holds."""
    jar = generate("java", tmp_path, "--library", "native", "--additional-properties=openApiNullable=false")
    sources = [*map(str, (tmp_path / "src" / "main").rglob("*.java")), *map(str, PROGRAMS.glob("*.java"))]
    run(find("javac"), "-nowarn", "-proc:none", "-cp", jar, "-d", str(tmp_path / "classes"), *sources)
    check(run(find("java"), "-cp", os.pathsep.join([str(tmp_path / "classes"), jar]), "Rank", demo, lists))


def test_python(run, demo, lists, check, tmp_path):
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", DOCUMENT, "--meta", "none"]
    run(*command, "--output-path", str(tmp_path / "generated"))
    shutil.copy(PROGRAMS / "rank.py", tmp_path)
    check(run(sys.executable, "rank.py", demo, lists, cwd=tmp_path))


def test_go_and_the_other_python_have_the_candidates(generate, tmp_path):
    """There is no Go to compile with; the other Python would need libraries of its own."""
    generate("go", tmp_path / "go")
    assert "Candidates []Candidate `json" in (tmp_path / "go" / "model_rerank_rows.go").read_text()
    generate("python", tmp_path / "python")
    text = (tmp_path / "python" / "openapi_client" / "models" / "rerank_rows.py").read_text()
    assert "candidates: Annotated[List[Candidate]" in text
