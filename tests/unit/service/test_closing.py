"""The end of the application: each part is closed, whatever the close of another one does."""

import pytest

from listwright.ranking import bundle
from listwright.ranking.served_log import files
from listwright.service.app import create_app
from listwright.service.settings import Settings
from support.service.asgi import asking
from support.service.bundles import make_bundle

BODY = {"features": [[1234.5, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]], "query_id": "q-1"}


@pytest.fixture
def app(tmp_path):
    """An application with all of its parts, over one bundle."""
    (tmp_path / "served").mkdir()
    for name in ("rules.toml", "experiments.toml"):
        (tmp_path / name).write_text("", encoding="utf-8")
    settings = Settings(
        bundle=make_bundle(tmp_path / "shop" / "7"),
        served_log=tmp_path / "served",
        events_log=tmp_path / "events",
        rules=tmp_path / "rules.toml",
        experiments=tmp_path / "experiments.toml",
        explain=True,
    )
    return create_app(settings, models=bundle.load(settings.bundle))


def raised_with(error):
    """An error and all that were raised before it, as their texts."""
    while error is not None:
        yield str(error)
        error = error.__context__


@pytest.mark.parametrize(
    "failing", [["rules"], ["explainer"], ["events"], ["experiments"], ["rules", "explainer", "experiments"]]
)
def test_the_served_log_is_flushed_although_other_closes_fail(app, tmp_path, monkeypatch, failing):
    def failing_close(name):
        def close():
            raise RuntimeError(name)

        return close

    for name in failing:
        part = getattr(app.service, name)
        monkeypatch.setattr(part, "stop" if name == "rules" else "close", failing_close(name))
    with pytest.raises(RuntimeError) as raised, asking(app) as client:
        assert client.post("/rerank", json=BODY).status_code == 200
    assert set(failing) <= set(raised_with(raised.value))
    log_files = files.log_files(tmp_path / "served", unfinished=False)
    assert [record.query_id for record in files.records(log_files)] == ["q-1"]
