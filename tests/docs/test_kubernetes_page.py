"""The commands of docs/kubernetes.md fit the chart, the Dockerfiles and the Makefile, and its defaults are the chart's."""

import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from support.chart import of_kind
from support.waiting import PATIENCE_S
from tools import chart

ROOT = chart.FOLDER.parents[1]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
SHELL = [text.replace("\\\n", " ") for text in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.M | re.S)]
COMMANDS = [shlex.split(line) for text in SHELL for line in text.splitlines() if line.strip()]
HELM = [words for words in COMMANDS if words[0] == "helm"]
BUILDS = [words for words in COMMANDS if words[:2] == ["docker", "build"]]


def values_of(words):
    """What ``-f`` and ``--set`` of a command say, merged as Helm merges them."""
    values = {"image": {"repository": "registry.example.com/shop/listwright"}}
    rest = iter(words[4:])
    for word in rest:
        if word == "-f":
            values |= chart.merge_values([ROOT / next(rest)])
        elif word == "--set":
            path, _, value = next(rest).partition("=")
            *folders, name = path.split(".")
            into = values
            for folder in folders:
                into = into.setdefault(folder, {})
            into[name] = yaml.safe_load(value)
        else:
            assert word == "--reuse-values", f"the test knows no {word}"
    return values


@pytest.mark.parametrize("words", HELM, ids=" ".join)
def test_helm_accepts_the_values(words):
    assert (ROOT / words[3]).resolve() == chart.CHART
    values = values_of(words)
    if words[1] == "upgrade" and "bundle" in values:
        values["bundle"]["from"] = "image"
    deployment = of_kind("Deployment", values, release=words[2])
    assert deployment["metadata"]["name"] == "shop-listwright"


def test_the_tutorial_installs_ten_replicas_of_the_bundle_that_it_packed():
    deployment = of_kind("Deployment", values_of(HELM[0]))
    (volume,) = [volume for volume in deployment["spec"]["template"]["spec"]["volumes"] if "image" in volume]
    assert deployment["spec"]["replicas"] == 10
    assert volume["image"]["reference"] == BUILDS[1][BUILDS[1].index("-t") + 1]
    (served,) = deployment["spec"]["template"]["spec"]["containers"]
    assert served["image"] == BUILDS[0][BUILDS[0].index("-t") + 1]


def test_images_are_built_from_the_files_that_there_are():
    assert len(BUILDS) == 3
    for words in BUILDS:
        file = ROOT / (words[words.index("-f") + 1] if "-f" in words else "Dockerfile")
        declared = set(re.findall(r"^ARG (\w+)", file.read_text(encoding="utf-8"), re.M))
        given = {words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--build-arg"}
        assert given <= declared


def test_the_kustomization_changes_image_and_number(tmp_path):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    shutil.copytree(chart.RENDERED.parent, tmp_path / "shop" / "rendered")
    given = text.replace("../deploy/kubernetes/rendered", "rendered")
    assert given != text
    (tmp_path / "shop" / "kustomization.yaml").write_text(given)
    built = [kubectl, "kustomize", str(tmp_path / "shop")]
    done = subprocess.run(built, capture_output=True, check=True, timeout=PATIENCE_S)
    objects = list(yaml.safe_load_all(done.stdout))
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    (served,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (deployment["spec"]["replicas"], served["image"]) == (10, "registry.example.com/shop/listwright:0.1.0")
    assert {item["metadata"]["namespace"] for item in objects} == {"shop"}


def test_the_objects_are_called_as_the_page_calls_them():
    names = {item["metadata"]["name"] for item in chart.render(release="shop")}
    named = re.findall(r"(?:deployment|service)/([\w-]+)", PAGE)
    assert named
    assert set(named) == names
    assert of_kind("Service")["spec"]["ports"][0]["port"] == int(re.search(r"8000:(\d+)", PAGE)[1])


def test_make_knows_the_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make ([\w-]+)`", PAGE))
    assert targets >= {"kube-test", "sbom"}
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []


def leaves(values, schema, path=()):
    """Each value with its path and default, down to where the chart knows no names."""
    for name, value in values.items():
        below = schema["properties"].get(name, {})
        if isinstance(value, dict) and value and "properties" in below:
            yield from leaves(value, below, (*path, name))
        else:
            yield ".".join((*path, name)), value


def test_the_table_has_the_defaults_of_the_chart():
    with chart.Chart.load(chart.CHART) as loaded:
        defaults = dict(leaves(loaded.values, loaded.schema))
    table = PAGE.partition("<!-- values: begin -->")[2].partition("<!-- values: end -->")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|", table, re.M)
    stated = {name: None if given == "none" else yaml.safe_load(given.strip("`")) for name, given in rows}
    assert stated
    assert stated == {name: None if defaults[name] in ("", [], {}) else defaults[name] for name in stated}
