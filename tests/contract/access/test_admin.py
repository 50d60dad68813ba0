"""The operator's endpoints: nobody gets in without the key, and without one set there is nothing to get into."""

import pytest

from listwright.service.app import create_app
from listwright.service.settings import Settings
from support.service.asgi import asking, serving

KEY = "key-of-the-operator-ü"
PATHS = ("/admin/reload", "/admin/rollback")


def bearer(key):
    return {"Authorization": b"Bearer " + key.encode()}


@pytest.mark.parametrize("path", PATHS)
def test_without_a_key_set_there_is_nothing(bundle_folder, path):
    with serving(bundle_folder) as client:
        for headers in ({}, bearer(KEY), bearer("")):
            response = client.post(path, headers=headers)
            assert response.status_code == 404
            assert response.json()["detail"] == f"there is nothing at {path}: see the paths in /openapi.json"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [{}, bearer(""), bearer("x"), bearer(KEY[:-1]), bearer(KEY + "x"), {"Authorization": b"Basic " + KEY.encode()}],
    ids=["none", "empty", "other", "shorter", "longer", "another scheme"],
)
def test_without_the_key_nobody_gets_in(bundle_folder, path, headers):
    with serving(bundle_folder, admin_key=KEY) as client:
        response = client.post(path, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["type"] == "urn:listwright:unauthorized"
        assert KEY not in response.text


@pytest.mark.parametrize("path", PATHS)
def test_one_bundle_is_served_for_good(bundle_folder, path):
    with serving(bundle_folder, admin_key=KEY) as client:
        response = client.post(path, headers=bearer(KEY))
        assert response.status_code == 409
        assert response.json()["type"] == "urn:listwright:reload-refused"
        assert "LISTWRIGHT_MODELS" in response.json()["detail"]


def test_a_misspelt_model_is_not_the_default_one(models):
    with asking(create_app(Settings(models=models, admin_key=KEY, poll_s=0))) as client:
        for path in ("/admin/rollback?modle=shop", "/admin/reload?model=shop", "/admin/rollback?model=shop&model=shop"):
            refused = client.post(path, headers=bearer(KEY))
            assert (refused.status_code, refused.json()["type"]) == (422, "urn:listwright:invalid-request"), path
        assert [served["version"] for served in client.get("/info").json()["models"]] == ["1"]


def test_nothing_is_reloaded_before_something_is_loaded(bundle_folder):
    app = create_app(Settings(bundle=bundle_folder, admin_key=KEY))
    with asking(app, started=False) as client:
        assert client.post("/admin/reload", headers=bearer(KEY)).status_code == 503
