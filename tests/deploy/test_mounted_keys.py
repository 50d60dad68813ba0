"""Keys from a mounted Secret: Kubernetes mounts each file as a link to a link, and changes both at once."""

from pathlib import Path

from listwright.service.auth import keys
from listwright.service.settings import Settings
from support.chart import container, environment, pod

VALUES = {"keys": {"secret": "callers"}}


def mount(at, moment, text):
    """Mount, or change, as Kubernetes does."""
    at.mkdir(exist_ok=True)
    (at / moment).mkdir()
    (at / moment / "keys").write_text(text)
    (at / "..new").symlink_to(moment)
    (at / "..new").replace(at / "..data")
    if not (at / "keys").is_symlink():
        (at / "keys").symlink_to("..data/keys")


def test_the_secret_lies_where_the_service_looks():
    (folder,) = [m["mountPath"] for m in container(VALUES)["volumeMounts"] if m["name"] == "keys"]
    (volume,) = [v for v in pod(VALUES)["volumes"] if v["name"] == "keys"]
    path = Path(environment(VALUES)["LISTWRIGHT_KEYS_FILE"])
    assert (str(path.parent), path.name) == (folder, "keys")
    assert volume["secret"] == {"secretName": "callers", "defaultMode": 0o440}


def test_a_changed_secret_is_read(tmp_path):
    settings = Settings(bundle=Path("models/demo/1"), keys_file=tmp_path / "mounted" / "keys")
    for moment, name in (("..2026_1", "web"), ("..2026_2", "batch")):
        mount(tmp_path / "mounted", moment, f"{name}:6f1ed002ab5595859014ebf0951522d9\n")
        (key,) = keys.read(settings)
        assert key.name == name
