"""The Helm chart: lint, its schema, and what every Kubernetes version accepts."""

import re
import shutil
import subprocess
import tomllib

import helm_python
import kubernetes_validate
import pytest
import yaml
from helm_python.errors import HelmError
from kubernetes_validate.utils import all_versions, major_minor

from listwright.service.settings import PREFIX, Settings
from support.chart import VALUE_SETS, container, environment, of_kind, pod
from support.waiting import PATIENCE_S
from tools import chart

VERSIONS = [major_minor(version) for version in all_versions()[-6::2]]
OPERATOR = "monitoring.coreos.com/v1"
"""Objects of the Prometheus operator: ``test_chart_monitoring.py`` checks them."""

every_value_set = pytest.mark.parametrize("name", VALUE_SETS)


@every_value_set
def test_helm_lint_finds_nothing(name):
    report = helm_python.lint(chart.CHART, VALUE_SETS[name], strict=True)
    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    assert [said for said in report["messages"] if said["severity"] > 1] == []


@pytest.mark.parametrize("version", VERSIONS)
@every_value_set
def test_kubernetes_accepts_every_object(name, version):
    objects = [item for item in chart.render(VALUE_SETS[name]) if item["apiVersion"] != OPERATOR]
    assert len(objects) >= 4
    for item in objects:
        kubernetes_validate.validate(item, version, strict=True)


def test_the_committed_rendering_is_fresh():
    assert chart.RENDERED.read_text(encoding="utf-8") == chart.HEAD + chart.as_yaml(chart.render())


def test_the_committed_schema_knows_the_settings_of_the_service():
    assert chart.SCHEMA.read_text(encoding="utf-8") == chart.schema_text()
    assert {PREFIX + name.upper() for name in Settings.model_fields} == chart.settings_schema()["properties"].keys() | {
        PREFIX + name.upper() for name in chart.OF_THE_CHART
    }


def test_kustomize_gives_the_same_objects():
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", str(chart.RENDERED.parent)], capture_output=True, check=True, timeout=PATIENCE_S
    )
    built = sorted(yaml.safe_load_all(done.stdout), key=lambda item: item["kind"])
    assert built == sorted(chart.render(), key=lambda item: item["kind"])


@every_value_set
def test_every_variable_is_one_that_the_service_reads(name, tmp_path, monkeypatch):
    """And its settings accept the values."""
    variables = environment(VALUE_SETS[name])
    fields = {PREFIX + field.upper() for field in Settings.model_fields} | {"LISTWRIGHT_CACHE"}
    assert [variable for variable in variables if variable not in fields and not variable.startswith("OTEL_")] == []
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    settings = Settings()
    workers, host = VALUE_SETS[name].get("workers", 2), VALUE_SETS[name].get("host", "0.0.0.0")
    assert (settings.workers, settings.host, settings.port) == (workers, host, 8000)
    assert settings.max_payload_bytes in (16 * 2**20, 32 * 2**20)


def test_large_numbers_have_no_exponent():
    """Helm reads numbers as floating point; the service would refuse ``3.3554432e+07``."""
    variables = environment({"settings": {"LISTWRIGHT_MAX_PAYLOAD_BYTES": 33554432, "LISTWRIGHT_QUEUE_MS": 0.5}})
    assert variables["LISTWRIGHT_MAX_PAYLOAD_BYTES"] == "33554432"
    assert variables["LISTWRIGHT_QUEUE_MS"] == "0.5"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 3}, r"replicas.* not allowed"),
        ({"replicaCount": -1}, r"/replicaCount.*minimum: got -1, want 0"),
        ({"workers": 0}, r"/workers.*minimum: got 0, want 1"),
        ({"workers": "two"}, r"/workers.*got string, want integer"),
        ({"image": {"digest": "sha256:short"}}, r"/image/digest.*does not match pattern"),
        ({"bundle": {"from": "s3"}}, r"/bundle/from.*must be one of 'inside', 'image', 'copy', 'claim'"),
        ({"bundle": {"from": "image"}}, r"/bundle/image.*minLength: got 0, want 1"),
        ({"bundle": {"from": "claim"}}, r"/bundle/claim.*minLength: got 0, want 1"),
        ({"settings": {"LISTWRIGHT_QUEUE": 20_000}}, r"/settings/LISTWRIGHT_QUEUE.*maximum: got 20,000, want 10,000"),
        ({"settings": {"LISTWRIGHT_QEUE": 20}}, r"/settings.*LISTWRIGHT_QEUE"),
        ({"settings": {"LISTWRIGHT_DRAIN_S": 20}}, r"/settings.*LISTWRIGHT_DRAIN_S"),
        ({"settings": {"LISTWRIGHT_LOG_LEVEL": "loud"}}, r"/settings/LISTWRIGHT_LOG_LEVEL.*must be one of"),
        ({"fullnameOverride": "a..b"}, r"/fullnameOverride.*does not match pattern"),
        ({"nameOverride": "a.-b"}, r"/nameOverride.*does not match pattern"),
        ({"keys": {"secret": "a..b"}}, r"/keys/secret.*does not match pattern"),
        ({"bundle": {"sizeLimit": -1}}, r"/bundle/sizeLimit.*minimum: got -1, want 0"),
        ({"logs": {"sizeLimit": -1}}, r"/logs/sizeLimit.*minimum: got -1, want 0"),
        ({"resources": {"requests": {"cpu": -1}}}, r"/resources/requests/cpu.*minimum: got -1, want 0"),
        ({"resources": {"limits": {"memory": "2 GB"}}}, r"/resources/limits/memory.*does not match pattern"),
        ({"disruptionBudget": {"maxUnavailable": 0}}, r"/disruptionBudget/maxUnavailable"),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 3}},
            r"minReplicas is 5, above .* 3: raise",
        ),
        ({"networkPolicy": {"from": "everyone"}}, r"/networkPolicy/from.*got string, want array"),
        ({"service": {"ipFamilies": ["IPv5"]}}, r"/service/ipFamilies/0.*must be one of"),
        ({"image": {"tag": 1.1}}, r"/image/tag.*got number, want string"),
        ({"podLabels": {"year": 2024}}, r"/podLabels/year.*got number, want string"),
        ({"replicaCount": None}, r"replicaCount"),
        ({"image": {"repository": None}}, r"/image.*repository"),
        ({"probes": None}, r"missing property 'probes'"),
        ({"podLabels": {"app.kubernetes.io/name": "other"}}, r"/podLabels"),
        ({"podAnnotations": {"checksum/settings": "x"}}, r"/podAnnotations"),
        (
            {"logs": {"shipper": {"image": "x", "env": [{"name": "N", "value": 1}]}}},
            r"/logs/shipper/env/0/value.*number",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(values, said):
    with pytest.raises(HelmError, match=said):
        chart.render(values)


def test_pods_have_no_more_rights_than_they_need():
    for values in VALUE_SETS.values():
        spec = pod(values)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in [*spec["containers"], *spec.get("initContainers", [])]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert each["resources"]["limits"]["memory"]
        read_only = {mount["name"] for mount in spec["containers"][0]["volumeMounts"] if mount.get("readOnly")}
        assert read_only == {volume["name"] for volume in spec["volumes"]} - {"tmp", "logs", "cache"}


SCALARS = [
    "2024",
    "0123",
    "0x10",
    "0o17",
    "1e3",
    "1.10",
    "1_000",
    "12.5e1",
    "on",
    "off",
    "yes",
    "no",
    "y",
    "n",
    "true",
    "null",
]
"""Names that Kubernetes takes, and YAML reads as a number, a boolean or nothing without quotes."""

WORDS = [
    *SCALARS,
    "~",
    "",
    "-1",
    ".inf",
    "1:30",
    "2024-01-01",
    "a: b",
    "- a",
    "#a",
    "{a}",
    "'a'",
    '"a"',
    "&a",
    "*a",
    "!a",
    "%",
]
"""Values that are no names."""


@pytest.mark.parametrize("text", [text for text in SCALARS if re.fullmatch("[a-z0-9][a-z0-9.]*", text)])
def test_names_stay_text(text):
    """Release, names, Secrets, claims and tags; every object has the same pods in mind."""
    secret = {"secret": text, "key": text}
    values = {
        "nameOverride": text,
        "image": {"repository": text, "tag": text},
        "imagePullSecrets": [text],
        "bundle": {"from": "claim", "claim": text},
        "keys": secret,
        "admin": secret,
        "tls": {"secret": text},
        "logs": {"served": True, "salt": secret},
        "experiments": text,
        "priorityClassName": text,
        "autoscaling": {"enabled": True},
        "monitoring": {"serviceMonitor": {"enabled": True, "keySecret": {"name": text, "key": text}}},
    }
    objects = chart.render(values, release=text)
    for item in objects:
        labels = item["metadata"]["labels"]
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/instance"]) == (text, text)
        if item["kind"] != "Service":
            assert item["metadata"]["name"] in (text, f"{text}-experiments")
        if item["apiVersion"] != OPERATOR:
            kubernetes_validate.validate(item, VERSIONS[-1], strict=True)
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (served,) = spec["containers"]
    assert spec["imagePullSecrets"] == [{"name": text}]
    assert spec["priorityClassName"] == text
    assert served["image"] == f"{text}:{text}"
    assert served["envFrom"] == [{"configMapRef": {"name": text}}]
    keys = [entry["valueFrom"]["secretKeyRef"] for entry in served["env"] if "valueFrom" in entry]
    assert keys == [{"name": text, "key": text}] * 2
    sources = {volume["name"]: volume for volume in spec["volumes"]}
    assert sources["keys"]["secret"]["secretName"] == sources["tls"]["secret"]["secretName"] == text
    assert sources["bundles"]["persistentVolumeClaim"]["claimName"] == text
    assert sources["experiments"]["configMap"]["name"] == f"{text}-experiments"
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == text
    (monitor,) = [item for item in objects if item["kind"] == "ServiceMonitor"]
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"] == {"name": text, "key": text}
    (file,) = [item["data"] for item in objects if item["metadata"]["name"] == f"{text}-experiments"]
    assert file == {"experiments.toml": text}


@pytest.mark.parametrize("text", ["\n\na", "  begin\n end", 'a = """\n\n  <&>\n"""\n'])
def test_experiments_keep_their_blanks(text):
    objects = chart.render({"experiments": text})
    (file,) = [item["data"] for item in objects if item["metadata"]["name"].endswith("-experiments")]
    assert file == {"experiments.toml": text}


@pytest.mark.parametrize("text", WORDS)
def test_values_stay_text(text):
    """Settings, labels, annotations, variables and arguments."""
    values = {
        "settings": {"OTEL_SERVICE_NAME": text},
        "podLabels": {"label": text},
        "podAnnotations": {"note": text},
        "nodeSelector": {"node": text},
        "service": {"annotations": {"note": text}},
        "bundle": {"path": f"/{text}"},
        "logs": {
            "served": True,
            "shipper": {"image": "ship", "command": [text], "args": [text], "env": [{"name": "V", "value": text}]},
        },
        "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"label": text}}},
        "fullnameOverride": "n",
    }
    objects = {item["kind"]: item for item in chart.render(values)}
    template = objects["Deployment"]["spec"]["template"]
    (shipper,), (served,) = template["spec"]["initContainers"], template["spec"]["containers"]
    assert objects["ConfigMap"]["data"] == {"OTEL_SERVICE_NAME": text}
    assert (template["metadata"]["labels"]["label"], template["metadata"]["annotations"]["note"]) == (text, text)
    assert template["spec"]["nodeSelector"] == {"node": text}
    assert objects["Service"]["metadata"]["annotations"] == {"note": text}
    assert {entry["name"]: entry["value"] for entry in served["env"]}["LISTWRIGHT_BUNDLE"] == f"/{text}"
    assert (shipper["command"], shipper["args"], shipper["env"]) == ([text], [text], [{"name": "V", "value": text}])
    assert objects["ServiceMonitor"]["metadata"]["labels"]["label"] == text


@pytest.mark.parametrize("release", ["2024", "a.b", "0x10", "on", "x" * 53])
def test_a_service_has_a_name_that_kubernetes_takes(release):
    """RFC 1035: a letter first, no dots; other objects may have both."""
    name = of_kind("Service", release=release)["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert release[:40].replace(".", "-") in name


@pytest.mark.parametrize(
    ("values", "host", "service"),
    [
        ({}, "0.0.0.0", {}),
        ({"host": "::"}, "::", {}),
        (VALUE_SETS["dual-stack"], "::", {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}),
    ],
    ids=["IPv4", "IPv6", "both"],
)
def test_address_families(values, host, service):
    assert environment(values)["LISTWRIGHT_HOST"] == host
    spec = of_kind("Service", values)["spec"]
    assert {key: spec[key] for key in spec if key.startswith("ipFam")} == service


RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("values", "of_pod", "of_container"),
    [
        (
            VALUE_SETS["openshift"],
            {
                "runAsNonRoot": True,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            RESTRICTED,
        ),
        ({"podSecurityContext": None, "securityContext": None}, None, None),
        (
            {
                "podSecurityContext": {
                    "runAsUser": 1000680000,
                    "runAsGroup": None,
                    "fsGroup": None,
                    "fsGroupChangePolicy": None,
                    "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
                },
                "securityContext": {"readOnlyRootFilesystem": False, "seLinuxOptions": {"level": "s0:c1"}},
            },
            {
                "runAsNonRoot": True,
                "runAsUser": 1000680000,
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
            },
            RESTRICTED | {"readOnlyRootFilesystem": False, "seLinuxOptions": {"level": "s0:c1"}},
        ),
    ],
    ids=["openshift", "none", "other"],
)
def test_security_contexts_are_the_operators_choice(values, of_pod, of_container):
    """Each key by itself; ``restricted-v2`` refuses a user or group that the pod names."""
    logs = {"served": True, "shipper": {"image": "ship"}}
    spec = pod(values | {"logs": logs, "bundle": {"from": "copy", "image": "b"}})
    assert spec.get("securityContext") == of_pod
    contexts = [each.get("securityContext") for each in [*spec["containers"], *spec["initContainers"]]]
    assert contexts == [of_container] * 3


def test_the_user_is_that_of_the_image():
    dockerfile = (chart.FOLDER.parents[1] / "Dockerfile").read_text(encoding="utf-8")
    context = pod()["securityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile


def test_the_image_is_that_of_this_version():
    project = tomllib.loads((chart.FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert container()["image"] == f"listwright:{project['version']}"
    pinned = container({"image": {"tag": "9", "digest": "sha256:" + "0" * 64}})["image"]
    assert pinned == "listwright@sha256:" + "0" * 64


def test_a_service_of_this_name_sets_no_setting():
    """Kubernetes would set LISTWRIGHT_PORT=tcp://10.0.0.1:80 for a Service called listwright."""
    assert pod()["enableServiceLinks"] is False
    assert environment()["LISTWRIGHT_PORT"] == "8000"


@every_value_set
def test_a_pod_has_time_to_end(name):
    """The sleep before SIGTERM, the drain after it, 25 s for what it has accepted, and something to spare."""
    spec = pod(VALUE_SETS[name])
    sleep, seconds = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    drain = float(environment(VALUE_SETS[name])["LISTWRIGHT_DRAIN_S"])
    assert sleep == "sleep"
    assert spec["terminationGracePeriodSeconds"] == int(seconds) + drain + 25 + 5


def test_probes_are_those_of_the_service():
    served = container()
    paths = {kind: served[kind]["httpGet"]["path"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
    secured = container({"tls": {"secret": "tls"}})
    assert {secured[kind]["httpGet"]["scheme"] for kind in paths} == {"HTTPS"}


@pytest.mark.parametrize("port", [None, 9000])
def test_grpc_has_a_port_where_it_is_on(port):
    values = {} if port is None else {"settings": {"LISTWRIGHT_GRPC_PORT": port}}
    service, policy = of_kind("Service", values), of_kind("NetworkPolicy", values)
    grpc = {} if port is None else {"grpc": port}
    assert {each["name"]: each["containerPort"] for each in container(values)["ports"]} == {"http": 8000} | grpc
    assert {each["name"]: each["port"] for each in service["spec"]["ports"]} == {"http": 80} | grpc
    assert all(each["name"] == each["targetPort"] for each in service["spec"]["ports"])
    assert [each["port"] for each in policy["spec"]["ingress"][0]["ports"]] == ["http", *grpc]


def test_one_core_for_each_worker():
    assert container({"workers": 3})["resources"]["requests"]["cpu"] == "3"
    assert container({"resources": {"requests": {"cpu": "500m"}}})["resources"]["requests"]["cpu"] == "500m"


def test_autoscaling_decides_about_the_number_of_pods():
    assert "replicas" not in of_kind("Deployment", {"autoscaling": {"enabled": True}})["spec"]
    assert of_kind("Deployment", {"replicaCount": 10})["spec"]["replicas"] == 10
    metrics = of_kind("HorizontalPodAutoscaler", VALUE_SETS["production"])["spec"]["metrics"]
    assert [metric["type"] for metric in metrics] == ["ContainerResource", "Pods"]
    assert metrics[0]["containerResource"]["container"] == container({})["name"]  # a sidecar may have no requests
    assert metrics[1]["pods"]["target"] == {"type": "AverageValue", "averageValue": "4"}


def test_new_settings_replace_the_pods():
    def annotation(values):
        return of_kind("Deployment", values)["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]

    assert annotation({"settings": {"LISTWRIGHT_QUEUE": 1}}) != annotation({"settings": {"LISTWRIGHT_QUEUE": 2}})
    assert annotation({"replicaCount": 1}) == annotation({"replicaCount": 2})


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_all_of_them_mean_the_same_pods(kind):
    spec = of_kind(kind, release="shop")["spec"]
    selector = spec.get("podSelector") or spec["selector"]
    labels = of_kind("Deployment", release="shop")["spec"]["template"]["metadata"]["labels"]
    chosen = selector.get("matchLabels", selector)
    assert "shop" in chosen.values()
    assert chosen.items() <= labels.items()


@pytest.mark.parametrize(
    ("values", "variable", "folder", "volume"),
    [
        ({}, "LISTWRIGHT_BUNDLE", "/models/demo/1", None),
        (VALUE_SETS["bundle-image"], "LISTWRIGHT_BUNDLE", "/volume/bundle", "image"),
        (VALUE_SETS["bundle-copy"], "LISTWRIGHT_BUNDLE", "/bundle", "emptyDir"),
        (VALUE_SETS["bundle-claim"], "LISTWRIGHT_MODELS", "/bundles", "persistentVolumeClaim"),
    ],
    ids=["inside", "image", "copy", "claim"],
)
def test_where_the_bundle_comes_from(values, variable, folder, volume):
    assert environment(values)[variable] == folder
    mounts = {mount["mountPath"]: mount["name"] for mount in container(values)["volumeMounts"]}
    kinds = {each["name"]: set(each) - {"name"} for each in pod(values)["volumes"]}
    found = [kinds[name] for path, name in mounts.items() if folder.startswith(path)]
    assert found == ([] if volume is None else [{volume}])


def test_bundles_at_a_url_are_copied_into_a_volume_and_opened_by_a_secret_or_a_service_account():
    values = VALUE_SETS["bundle-url"]
    assert environment(values)["LISTWRIGHT_MODELS"] == "s3://models/live"
    mounts = {mount["mountPath"]: mount["name"] for mount in container(values)["volumeMounts"]}
    (volume,) = [
        each for each in pod(values)["volumes"] if each["name"] == mounts[environment(values)["LISTWRIGHT_CACHE"]]
    ]
    assert "emptyDir" in volume
    assert {"secretRef": {"name": "models"}} in container(values)["envFrom"]
    ports = [port["port"] for rule in of_kind("NetworkPolicy", values)["spec"]["egress"] for port in rule["ports"]]
    assert set(ports) == {53, 443}
    assert "serviceAccountName" not in pod(values)
    assert pod({**values, "serviceAccount": "reader"})["serviceAccountName"] == "reader"
    with pytest.raises(HelmError, match="url"):
        chart.render({"bundle": {"from": "url", "url": "s3://user:secret@models/live"}})
