"""Which bundle a request gets."""

import pytest

from listwright.ranking.bundle import Bundle
from listwright.ranking.manifest import Manifest
from listwright.service.bundles.models import Models
from listwright.service.errors import UnknownModelError
from support.stand_ins import standing_in


def bundle(name, version):
    return standing_in(Bundle, manifest=standing_in(Manifest, name=name, version=version))


def models(**versions):
    return Models({name: bundle(name, version) for name, version in versions.items()})


def chosen(models, model=None, version=None):
    manifest = models.choose(model, version).manifest
    return manifest.name, manifest.version


def test_the_only_one_answers_who_names_none():
    one = models(shop="7")
    for model in (None, "shop"):
        for version in (None, "7"):
            assert chosen(one, model, version) == ("shop", "7")


def test_a_name_and_an_alias_choose():
    served = Models(models(eu="7", us="7").current, aliases={"shop": "eu"})
    assert chosen(served, "us") == ("us", "7")
    assert chosen(served, "shop") == ("eu", "7")
    assert chosen(served, "shop", "7") == ("eu", "7")


def test_the_kept_version_answers_who_names_it():
    served = Models(models(shop="8").current, previous=models(shop="7").current)
    assert chosen(served) == ("shop", "8")
    assert chosen(served, None, "7") == ("shop", "7")


def test_a_version_is_a_names_own():
    served = Models(models(eu="8", us="7").current, previous=models(eu="7").current)
    with pytest.raises(UnknownModelError, match=r"^version '8' is not served here, '7' is$"):
        served.choose("us", "8")


@pytest.mark.parametrize(
    ("model", "version", "says"),
    [
        ("other", None, "model 'other' is not served here, 'eu', 'us' are"),
        (None, None, "several models are served and none is the default: name 'eu' or 'us'"),
        (None, "7", "several models are served and none is the default: name 'eu' or 'us'"),
        ("eu", "9", "version '9' is not served here, '7' is"),
    ],
)
def test_what_is_not_served_is_said(model, version, says):
    with pytest.raises(UnknownModelError) as refused:
        models(us="7", eu="7").choose(model, version)
    assert str(refused.value) == says


def test_the_default_of_several_is_called_so():
    assert chosen(models(default="3", us="7")) == ("default", "3")
    assert chosen(Models(models(eu="8", us="7").current, aliases={"default": "us"})) == ("us", "7")
    assert models(eu="8", us="7").default is None


def test_it_never_changes():
    served = models(shop="7")
    with pytest.raises(TypeError):
        served.current["shop"] = bundle("shop", "8")
