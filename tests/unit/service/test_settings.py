import pytest
from pydantic import ValidationError

from listwright.service.settings import Settings, describe, near_misses


def settings(**changes):
    return Settings(bundle="models/demo/1", **changes)


@pytest.mark.parametrize("name", ["hook:choose", "shop.routing:by_device", "shop:Router.choose", "_a.b1:c"])
def test_a_hook_is_a_module_and_a_callable(name):
    assert settings(hook=name).hook == name


@pytest.mark.parametrize(
    "name", ["", "shop.routing", "shop:", ":choose", "shop.:choose", "shop/routing.py:choose", "a:b c"]
)
def test_what_else_is_said_to_be_a_hook_is_refused(name):
    with pytest.raises(ValidationError, match=r"is not module:callable, e\.g\. shop\.routing:by_device"):
        settings(hook=name)


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf", "60001", "2ms"])
def test_a_budget_is_a_time(budget):
    with pytest.raises(ValidationError, match="hook_budget_ms"):
        settings(hook_budget_ms=budget)


def test_help_says_what_is_not_set():
    assert "LISTWRIGHT_HOOK (default none)" in describe()
    assert "LISTWRIGHT_ROUTING (default true)" in describe()


def test_what_is_almost_a_setting_is_pointed_out():
    assert near_misses(
        [
            "LISTWRIGHT_UNKNOWN_FEATURE",
            "listwright_model",
            "LISTWRIGHT_PORT",
            "listwright_port",
            "LISTWRIGHT_SERVICE_HOST",
            "LISTWRIGHT_PORT_8000_TCP",
            "LISTWRIGHT_CACHE",
            "HOME",
        ]
    ) == [("LISTWRIGHT_UNKNOWN_FEATURE", "LISTWRIGHT_UNKNOWN_FEATURES"), ("listwright_model", "LISTWRIGHT_MODELS")]
