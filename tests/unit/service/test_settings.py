import pytest
from pydantic import ValidationError

from listwright.service.auth import keys
from listwright.service.commands import serve as command_line
from listwright.service.settings import Settings, describe, near_misses


def settings(**changes):
    return Settings(bundle="models/demo/1", **changes)


@pytest.mark.parametrize("name", ["hook:choose", "shop.routing:by_device", "shop:Router.choose", "_a.b1:c"])
def test_a_hook_is_a_module_and_a_callable(name):
    assert settings(hook=name).hook == name


@pytest.mark.parametrize(
    "name", ["shop.routing", "shop:", ":choose", "shop.:choose", "shop/routing.py:choose", "a:b c"]
)
def test_what_else_is_said_to_be_a_hook_is_refused(name):
    with pytest.raises(ValidationError, match=r"is not module:callable, e\.g\. shop\.routing:by_device"):
        settings(hook=name)


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf", "60001", "2ms"])
def test_a_budget_is_a_time(budget):
    with pytest.raises(ValidationError, match="hook_budget_ms"):
        settings(hook_budget_ms=budget)


@pytest.mark.parametrize("blank", ["", " ", "\n", "\t "])
@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_a_blank_variable_is_a_mistake(name, blank, monkeypatch):
    """As a compose file makes of a variable that is not set; whatever kind of value it should have."""
    monkeypatch.setenv("LISTWRIGHT_BUNDLE", "models/demo/1")
    monkeypatch.setenv(f"LISTWRIGHT_{name.upper()}", blank)
    with pytest.raises(ValidationError) as raised:
        Settings()
    (fault,) = raised.value.errors()
    assert fault["loc"] == (name,)
    assert "is empty" in fault["msg"]


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


def test_another_name_is_one_of_one_bundle():
    assert settings(model_name="an-isvc").model_name == "an-isvc"
    with pytest.raises(ValidationError, match="NAME/ALIAS"):
        Settings(models="models", model_name="an-isvc")
    with pytest.raises(ValidationError, match="model_name"):
        settings(model_name="a/b")


SECRETS = {
    "admin_key": "an-operators-key-ü",
    "unit_salt": "a passphrase with blanks",
    "served_stream": "redis://:password@host:6379/0?stream=served",
}
AROUND = ("{}\n", "{}\r\n", " {} ", "\t{}\n\n", "\n{}", "{}")


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("around", AROUND)
def test_white_space_around_a_secret_is_not_part_of_it(name, around):
    found = getattr(settings(**{name: around.format(SECRETS[name])}), name)
    assert found.get_secret_value() == SECRETS[name]


@pytest.mark.parametrize("around", AROUND)
def test_nor_is_it_of_a_callers_key(around, tmp_path):
    (tmp_path / "keys").write_bytes(around.format("web:" + "k" * 20).encode())
    for chosen in ({"keys": around.format("web:" + "k" * 20)}, {"keys_file": tmp_path / "keys"}):
        (key,) = keys.read(settings(**chosen))
        assert (key.name, key.digest) == ("web", keys.digest_of(b"k" * 20))


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", ["", " ", "\n", "two\twords {}", "{}\n{}", "{}\x00{}", "{}\u200b{}", "{}\u00a0{}"])
def test_what_is_no_secret_is_refused_and_not_shown(name, value, monkeypatch, capsys):
    with pytest.raises(ValidationError, match=name):
        settings(**{name: value.format(*[SECRETS[name]] * 2)})
    if "\x00" not in value:  # which no environment holds
        monkeypatch.setenv(f"LISTWRIGHT_{name.upper()}", value.format(*[SECRETS[name]] * 2))
        assert command_line.main(["models/demo/1"]) == 2
        said = capsys.readouterr().err
        assert f"LISTWRIGHT_{name.upper()}" in said
        assert SECRETS[name] not in said


@pytest.mark.parametrize("name", ["admin_key", "served_stream"])
def test_a_blank_within_what_travels_is_refused(name):
    with pytest.raises(ValidationError, match=name):
        settings(**{name: f"{SECRETS[name]} more"})


@pytest.mark.parametrize(
    "value", ["", " \n", ",", "web:short", "web:kkkkkkkkkk kkkkkkkkkk", "web: kkkkkkkkkkkkkkkkkkkk"]
)
def test_nor_are_callers_keys_that_are_none(value, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_KEYS", value)
    assert command_line.main(["models/demo/1"]) == 2
