"""``python tools/sbom.py``: the CycloneDX SBOM of an image: its Python packages, Debian packages and Python.

Reads what tools/sbom.sh copied out of the image. Python packages come from ``cyclonedx-py``, with their licences and
dependencies. Debian's come from ``dpkg``'s own list. The result is validated, and holds every package or none.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

SPECIFICATION = SchemaVersion.V1_6


def canonical(name: str) -> str:
    """Normalise a Python package's name as an index does."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_packages(site_packages: Path) -> dict[str, Any]:
    """Return the SBOM of a folder of installed Python packages."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=False)  # an interpreter of this machine, which runs, for packages of another
        (empty,) = environment.glob("lib/python*/site-packages")
        empty.rmdir()
        empty.symlink_to(site_packages.resolve())
        file = Path(folder) / "sbom.json"
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--sv", SPECIFICATION.to_version()]
        done = subprocess.run(
            [*command, "--no-validate", "-o", str(file), str(environment / "bin" / "python")],
            capture_output=True,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        if done.returncode != 0:
            raise SystemExit(f"error: cyclonedx-py failed:\n{done.stderr}")
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return document


def debian_packages(status: str) -> Iterator[dict[str, Any]]:
    """Yield the components of ``/var/lib/dpkg/status``: the installed packages."""
    for paragraph in status.strip().split("\n\n"):
        fields = dict(re.findall(r"^(\w[\w-]*): (.*)$", paragraph, re.M))
        if fields["Status"].endswith(" installed"):
            qualifiers = {"arch": fields["Architecture"]}
            url = PackageURL("deb", "debian", fields["Package"], fields["Version"], qualifiers).to_string()
            yield component("library", fields["Package"], fields["Version"], url)


def component(kind: str, name: str, version: str, url: str) -> dict[str, Any]:
    """Build one entry; its reference is its package URL."""
    return {"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url}


def sbom(site_packages: Path, status: str, python: str, image: str, digest: str) -> dict[str, Any]:
    """Build the SBOM of an image.

    Args:
        site_packages: Folder of the image's Python packages.
        status: Text of dpkg's list of packages.
        python: Version of the image's Python.
        image: Name of the image.
        digest: Digest of the image's configuration, ``sha256:...``.

    Raises:
        SystemExit: if a package is missing, or the SBOM is not what the specification says.
    """
    document = python_packages(site_packages)
    document["components"] += [
        component("platform", "python", python, PackageURL("generic", None, "python", python).to_string()),
        *debian_packages(status),
    ]
    url = PackageURL("oci", None, image.rpartition("/")[2].partition(":")[0], digest).to_string()
    document["metadata"]["component"] = component("container", image, digest, url)
    # a package that was installed from a folder, as Listwright itself, has no package URL
    urls = [(entry["name"], entry.get("purl", "pkg:pypi/")) for entry in document["components"]]
    listed = {canonical(name) for name, url in urls if url.startswith("pkg:pypi/")}
    if missing := sorted(installed(site_packages) - listed):
        raise SystemExit(f"error: the SBOM lacks {', '.join(missing)}")
    if fault := JsonStrictValidator(SPECIFICATION).validate_str(json.dumps(document)):
        raise SystemExit(f"error: no valid SBOM: {fault}")
    return document


def installed(site_packages: Path) -> set[str]:
    """Return the names of the Python packages in a folder, from their own metadata."""
    return {canonical(distribution.metadata["Name"]) for distribution in distributions(path=[str(site_packages)])}


def main() -> int:
    """Write the file, and print what it lists."""
    parser = argparse.ArgumentParser(prog="python tools/sbom.py", description=__doc__)
    parser.add_argument("--venv", type=Path, required=True, help="the image's virtual environment")
    parser.add_argument("--status", type=Path, required=True, help="its /var/lib/dpkg/status")
    parser.add_argument("--image", required=True, help="its name")
    parser.add_argument("--digest", required=True, help="sha256:... of its configuration")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    (site_packages,) = options.venv.glob("lib/python*/site-packages")
    (python,) = re.findall(r"^version = (\S+)$", (options.venv / "pyvenv.cfg").read_text(encoding="utf-8"), re.M)
    status = options.status.read_text(encoding="utf-8")
    document = sbom(site_packages, status, python, options.image, options.digest)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{options.out}: {len(document['components'])} components, {len(installed(site_packages))} of them Python's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
