"""``docs/anywhere.md``: its examples run on the exported demo, its tables are the file's and the committed run's."""

import math
import re
import shutil
import subprocess
import sys

import onnxruntime
import pytest

from listwright.ranking import bundle
from listwright.training.export.ranker_file import write_ranker
from support.pages.figure_blocks import ROOT, blocks, page, result, table
from support.service.asgi import serving

sys.path.append(str(ROOT / "tools"))
from client_tools import NODE_MODULES

PAGE = page("docs/anywhere.md")
DEMO = ROOT / "models" / "demo" / "1"
NODE = NODE_MODULES / "onnxruntime-node"
TYPES = {"float32": "tensor(float)", "float64": "tensor(double)", "int64": "tensor(int64)", "string": "tensor(string)"}
(EXPECTED,) = re.findall(r"The order is `([\d ]+)`", PAGE)

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the exported demo, where the examples look for it."""
    folder = tmp_path_factory.mktemp("anywhere")
    write_ranker(bundle.load(DEMO), folder / "demo.onnx")
    return folder


def example(language):
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return code


def printed(folder, *command, **options):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_service_ranks_the_list_of_the_examples_so():
    numbers = [[None if math.isnan(value) else value for value in row] for row in _python()["numbers"]]
    rows = [[*row, *texts] for row, texts in zip(numbers, _python()["categories"], strict=True)]
    with serving(DEMO) as client:
        answer = client.post("/rerank", json={"features": rows}).json()
    assert " ".join(str(found["index"]) for found in answer["results"]) == EXPECTED


def _python():
    """The list of the example in Python."""
    values = {}
    exec("import numpy as np\n" + re.search(r"^numbers = .*?^inputs", example("python"), re.M | re.S)[0][:-6], values)
    return values


def test_every_example_ranks_the_same_list():
    numbers = [f"{value:g}" for row in _python()["numbers"] for value in row]
    texts = [text for row in _python()["categories"] for text in row]
    for language in ("js", "java", "csharp", "go", "rust", "c"):
        code = re.sub(r"float32\(math\.NaN\(\)\)|f32::NAN|[Ff]loat\.NaN|NAN|NaN", "nan", example(language))
        list_at = re.search(r"\bnan\b", code).start()
        found = re.findall(r"(?<![\w.])(nan|\d+(?:\.\d+)?)f?\.?(?=[\s,}\])])", code[code.rfind("0.3", 0, list_at) :])
        assert [f"{float(value):g}" for value in found[: len(numbers)]] == numbers, language
        assert re.findall(r'"(v\d|)"', code) == texts, language


def test_python(folder):
    assert printed(folder, sys.executable, "-c", example("python")) == EXPECTED


def test_javascript(folder):
    if shutil.which("node") is None or not NODE.is_dir():
        pytest.skip("no node, or no onnxruntime-node: python tools/client_tools.py fetches it with npm")
    (folder / "node_modules").symlink_to(NODE_MODULES)
    (folder / "rank.mjs").write_text(example("js"), encoding="utf-8")
    assert printed(folder, "node", "rank.mjs") == EXPECTED


def test_c(folder):
    libraries = [*NODE.glob("bin/napi-v*/linux/x64/libonnxruntime.so.1")]
    if shutil.which("gcc") is None or not libraries:
        pytest.skip("no gcc, or no onnxruntime-node, whose library it uses: python tools/client_tools.py fetches it")
    compile_it = ["gcc", "-Wall", "-Werror", "-I/usr/include/onnxruntime"]
    headers = [*compile_it, "-E", "-include", "onnxruntime_c_api.h", "-xc", "/dev/null"]
    if subprocess.run(headers, capture_output=True, check=False).returncode:
        pytest.skip("no onnxruntime_c_api.h: Debian's package libonnxruntime-dev, or its folder in C_INCLUDE_PATH")
    (folder / "rank.c").write_text(example("c"), encoding="utf-8")
    printed(folder, *compile_it, "rank.c", str(libraries[0]), "-lm", "-o", "rank")
    assert printed(folder, "./rank", env={"LD_LIBRARY_PATH": str(libraries[0].parent)}) == EXPECTED


def test_its_inputs_and_outputs_are_those_of_the_file(folder):
    session = onnxruntime.InferenceSession(folder / "demo.onnx")
    rows = dict(re.findall(r"^\| `(\w+)` \| (float32|float64|string|int64)\b", PAGE, re.M))
    write_ranker(bundle.load(DEMO), folder / "codes.onnx", codes=True)
    coded = onnxruntime.InferenceSession(folder / "codes.onnx")
    tensors = [*session.get_inputs(), *coded.get_inputs(), *session.get_outputs()]
    of_some_bundles = rows.pop("goal_shares")
    assert of_some_bundles == "float64"
    assert {tensor.name: tensor.type for tensor in tensors} == {name: TYPES[kind] for name, kind in rows.items()}
    assert "listwright.ranker" in session.get_modelmeta().custom_metadata_map


RANKERS = {"first_stage": "trees", "qilcm": "QILCM"}


def times():
    """The file's time over the bundle's."""
    ways = {"file": "file", "LightGBM": "LightGBM alone"}
    rows = []
    for row in result("anywhere")["table"]:
        ratios = [row["times_of_bundle"].get(way) for way in ways]
        cells = [f"{middle:.1f} [{low:.1f}, {high:.1f}]" for middle, low, high in filter(None, ratios)]
        ms = [f"{row['cpu_ms'][way]:.2f}" for way in ("bundle", "file")]
        cells += [""] * (len(ways) - len(cells))
        rows.append([f"{row['bundle']}, {RANKERS[row['ranker']]}", f"{row['candidates']:,}", *ms, *cells])
    return table(["ranker", "candidates", "bundle, ms", "file, ms", *ways.values()], rows)


def sizes():
    """Sizes, and peak memory of processes."""
    rows = [
        [
            f"{row['bundle']}, {RANKERS[row['ranker']]}",
            f"{row['file_mb']:.1f}",
            f"{row['bundle_mb']:.1f}",
            *(f"{row['peak_mb'][process]:.0f}" for process in ("file", "bundle", "NumPy")),
        ]
        for row in result("anywhere")["sizes"]
    ]
    processes = ("process with the file, MB", "with the bundle, MB", "with NumPy only, MB")
    return table(["ranker", "file, MB", "bundle, MB", *processes], rows)


def test_the_figures_are_those_of_the_committed_run():
    assert blocks(PAGE) == [times(), sizes()]


def test_the_orders_of_the_committed_run_are_equal():
    run = result("anywhere")
    assert all(row["equal_orders"] for row in run["table"])
    assert f"the orders of {len(run['table']) * run['lists']} lists" in " ".join(PAGE.split())
