import pytest
from pydantic import ValidationError

from service.settings import Settings, describe


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


def test_routing_is_on_unless_somebody_turned_it_off(tmp_path):
    assert settings().routing_off() is None
    assert settings(routing="false").routing_off() == "LISTWRIGHT_ROUTING is false"


def test_the_file_is_looked_for_each_time(tmp_path):
    switch = tmp_path / "off"
    one = settings(routing_off_file=switch)
    assert one.routing_off() is None
    switch.touch()
    assert one.routing_off() == "the file of LISTWRIGHT_ROUTING_OFF_FILE exists"
    switch.unlink()
    assert one.routing_off() is None
    assert settings(routing_off_file=tmp_path).routing_off() is not None, "a folder, as Kubernetes mounts them, counts"


def test_a_file_that_cannot_be_there_is_not(tmp_path):
    (tmp_path / "file").touch()
    assert settings(routing_off_file=tmp_path / "file" / "off").routing_off() is None


def test_a_file_that_cannot_be_looked_for_counts_as_there(tmp_path):
    """A name that is too long stands for every other reason, as root may read everything."""
    reason = settings(routing_off_file=tmp_path / ("x" * 5000)).routing_off()
    assert reason == "the file of LISTWRIGHT_ROUTING_OFF_FILE cannot be looked for: File name too long"


def test_help_says_what_is_not_set():
    assert "LISTWRIGHT_HOOK (default none)" in describe()
    assert "LISTWRIGHT_ROUTING (default true)" in describe()
