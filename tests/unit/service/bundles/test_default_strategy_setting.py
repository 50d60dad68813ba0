"""``LISTWRIGHT_STRATEGY``: what ``auto`` means, by the operator's word."""

import pytest
from pydantic import ValidationError

from listwright.ranking.errors import BundleError
from listwright.service.bundles import folder, loading
from listwright.service.settings import ALL_MODELS, Settings
from support.service.bundles import make_bundle
from support.service.swapping import BODY, run, serving, tell


def settings(**changes):
    return Settings(bundle="models/demo/1", **changes)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("first_stage", {ALL_MODELS: "first_stage"}),
        ("shop=qilcm", {"shop": "qilcm"}),
        ("shop=srm, travel-2=first_stage", {"shop": "srm", "travel-2": "first_stage"}),
        ("first_stage,shop=qilcm", {ALL_MODELS: "first_stage", "shop": "qilcm"}),
    ],
)
def test_one_for_all_or_by_name(said, meant):
    assert settings(strategy=said).strategies == meant


@pytest.mark.parametrize(
    "said", ["", "auto", "shop=", "=qilcm", "shop=best", "shop", "qilcm,mlp", "a=mlp,a=dcm", "a=b=c"]
)
def test_anything_else_is_refused(said):
    with pytest.raises(ValidationError, match="strategy"):
        settings(strategy=said)


async def route(client, **named):
    answer = await client.post("/rerank", json=BODY | named)
    assert answer.status_code == 200, answer.text
    return tuple(answer.json()["route"][word] for word in ("strategy", "decided_by"))


def test_it_goes_before_the_bundles_own(models):
    async def scenario():
        make_bundle(models / "travel" / "1", seed=4)
        folder.point(models, "travel", "1")
        async with serving(models, strategy="shop=first_stage") as (_, client):
            assert await route(client, model="shop") == ("first_stage", "bundle")
            assert await route(client, model="shop", strategy="qilcm") == ("qilcm", "caller")
            assert await route(client, model="travel") == ("qilcm", "bundle")
            for model, strategy in (("shop", "first_stage"), ("travel", "qilcm")):
                assert (await client.get("/info", params={"model": model})).json()["default_strategy"] == strategy
            folder.point(models, "shop", "2")
            await tell(client)
            assert await route(client, model="shop") == ("first_stage", "bundle"), "of the next version, too"
            assert await route(client, model="shop", version="1") == ("first_stage", "bundle")

    run(scenario)


def test_a_harmful_second_stage_can_be_the_default_all_the_same(models):
    async def scenario():
        make_bundle(models / "shop" / "4", harmful=True)
        folder.point(models, "shop", "4")
        async with serving(models) as (_, client):
            assert await route(client) == ("first_stage", "bundle")
        async with serving(models, strategy="qilcm") as (_, client):
            assert await route(client) == ("qilcm", "bundle")

    run(scenario)


def test_a_bundle_that_lacks_it_is_refused(models):
    make_bundle(models / "shop" / "4", kind="dlcm")
    with pytest.raises(
        BundleError, match=r"LISTWRIGHT_STRATEGY says dlcm for shop: this bundle has no strategy 'dlcm'"
    ):
        loading.start(Settings(models=models, strategy="dlcm", max_candidates=10, poll_s=0))

    async def scenario():
        async with serving(models, strategy="shop=qilcm") as (_, client):
            folder.point(models, "shop", "4")
            answer = await tell(client)
            assert answer.status_code == 409
            assert "LISTWRIGHT_STRATEGY says qilcm for shop: this bundle has no strategy 'qilcm'" in answer.text
            assert await route(client) == ("qilcm", "bundle")

    run(scenario)


def test_a_name_that_is_not_served_is_pointed_out(models, caplog):
    async def scenario():
        async with serving(models, strategy="first_stage,shop=qilcm,shpo=mlp"):
            pass

    run(scenario)
    warned = [record.message for record in caplog.records if "LISTWRIGHT_STRATEGY" in record.message]
    assert warned == ["LISTWRIGHT_STRATEGY names 'shpo', which is not served"]
