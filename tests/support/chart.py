"""Objects of the Helm chart, as several tests look at them."""

import yaml

from tools import chart

EXAMPLES = sorted((chart.FOLDER / "examples").glob("*.yaml"))
VALUE_SETS = {"default": {}} | {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in EXAMPLES}
"""Values by name: the defaults, and each file of ``deploy/kubernetes/examples``."""


def of_kind(kind, values=None, **options):
    """The one object of a kind."""
    (found,) = [item for item in chart.render(values, **options) if item["kind"] == kind]
    return found


def pod(values=None):
    """The pods' specification."""
    return of_kind("Deployment", values)["spec"]["template"]["spec"]


def container(values=None):
    """The container that serves."""
    (found,) = pod(values)["containers"]
    return found


def environment(values=None):
    """Its variables with their values, of both kinds; those from Secrets have a stand-in."""
    own = {entry["name"]: entry.get("value", "from-a-secret-000") for entry in container(values)["env"]}
    settings = next(item for item in chart.render(values) if item["kind"] == "ConfigMap")  # experiments have another
    return settings["data"] | own
