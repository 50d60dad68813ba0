"""No name that the product defines is a bare participle."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("ranking", "service", "training", "lab", "client/listwright_client", "benchmarks", "tools")
REFUSED = {
    *("asked", "chosen", "drawn", "found", "kept", "made", "named", "one", "said", "seen", "shown", "taken", "told"),
    "wanted",
}
REFUSED_FUNCTIONS = REFUSED | {"bests", "compared", "counted", "enough", "given", "loaded", "packed", "used"}
PUBLIC = {
    ("client/listwright_client/explanations.py", "one"),  # a key of POST /explain
    ("ranking/explaining/explanation.py", "one"),  # the same key
    ("training/export/inference_form.py", "one"),  # the number
    ("ranking/metrics.py", "kept"),  # an argument of listwright.ranking.ndcg
    ("service/api/info.py", "kept"),  # a key of GET /info
    ("training/traffic/join/events.py", "seen"),  # a key of a file of labels
}


def defined(tree):
    """Every name that a module defines, with its line: functions, classes, parameters, attributes, variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name, node.lineno


def test_names_are_no_bare_participles():
    paths = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 200
    refused = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in paths
        for name, line in defined(ast.parse(path.read_text(encoding="utf-8")))
        if name.lstrip("_").lower() in REFUSED and (path.relative_to(ROOT).as_posix(), name) not in PUBLIC
    ]
    assert refused == []


def test_functions_are_verbs():
    refused = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.lstrip("_") in REFUSED_FUNCTIONS
    ]
    assert refused == []
