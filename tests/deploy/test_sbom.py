"""The SBOM lists every package of an image, and is valid CycloneDX."""

import json

import pytest
from cyclonedx.validation.json import JsonStrictValidator

from tools import sbom

STATUS = """Package: libgomp1
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14+deb12u1
Description: GCC OpenMP support library
 with a second line

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
"""
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def site_packages(tmp_path):
    """Two packages as pip installs them."""
    for name, version, rest in [
        ("ranks-lists", "1.2", "License-Expression: MIT\nRequires-Dist: Own.Names>=3\n"),
        ("Own.Names", "3.0", ""),
    ]:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{rest}")
        (folder / "RECORD").write_text("")
    return tmp_path


def made(site_packages):
    return sbom.sbom(site_packages, STATUS, "3.11.9", "localhost/listwright", DIGEST)


def test_every_installed_package_is_listed(site_packages):
    document = made(site_packages)
    assert {(entry["name"], entry["version"]) for entry in document["components"]} == {
        ("ranks-lists", "1.2"),
        ("Own.Names", "3.0"),
        ("libgomp1", "12.2.0-14+deb12u1"),
        ("python", "3.11.9"),
    }
    assert document["metadata"]["component"]["version"] == DIGEST
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", sbom.SPECIFICATION.to_version())
    assert JsonStrictValidator(sbom.SPECIFICATION).validate_str(json.dumps(document)) is None


def test_licences_and_dependencies_come_along(site_packages):
    document = made(site_packages)
    (package,) = [entry for entry in document["components"] if entry["name"] == "ranks-lists"]
    (licence,) = package["licenses"]
    assert "MIT" in str(licence)
    (needs,) = [entry["dependsOn"] for entry in document["dependencies"] if entry["ref"] == package["bom-ref"]]
    assert needs == ["Own.Names==3.0"]


def test_a_package_that_is_not_listed_is_an_error(site_packages, monkeypatch):
    monkeypatch.setattr(sbom, "installed", lambda folder: {"ranks-lists", "own-names", "hidden"})
    with pytest.raises(SystemExit, match="the SBOM lacks hidden"):
        made(site_packages)


def test_an_invalid_sbom_is_an_error(site_packages, monkeypatch):
    monkeypatch.setattr(sbom, "component", lambda *words: {"type": "nothing", "name": "x"})
    with pytest.raises(SystemExit, match="no valid SBOM"):
        made(site_packages)
