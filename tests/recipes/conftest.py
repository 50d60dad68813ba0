"""An estimator that is fitted once for all tests that only ask it, and suites that run where tests can see them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from listwright import training
from listwright.training import cluster
from listwright.training.first_stage import lambdamart
from listwright_lab.suites.listwise import measurement, suite
from support.training.searches import SMALL, features, searched
from support.training.suites import ONE_EPOCH


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Keep what is parsed in a folder of the test's own."""
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def frame():
    return searched()


@pytest.fixture(scope="session")
def model(frame):
    """A fitted ``training.Qilcm``."""
    return training.Qilcm(**SMALL, categorical=("stops",)).fit(features(frame), frame["clicked"], frame["search"])


@pytest.fixture(scope="module")
def tiny_recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(ONE_EPOCH)
    return path


@pytest.fixture
def here(monkeypatch):
    """The fits one after the other in this process, where tests can see them; counts what is fitted."""
    measured, fits = suite.measure_fit, []
    tuned, search = lambdamart.search_settings, measurement.search_network

    @contextmanager
    def pool(jobs):
        with ThreadPoolExecutor(1) as one:
            try:
                yield one
            finally:
                one.shutdown(cancel_futures=True)

    def counted(fit, *where):
        fits.append(fit.name)
        return measured(fit, *where)

    def counted_tuning(train, valid, spec, **more):
        fits.extend(["tuning"] if spec.trials > 1 else [])
        return tuned(train, valid, spec, **more)

    def counted_search(model, *data, **more):
        fits.append(f"search of {model.kind}")
        return search(model, *data, **more)

    monkeypatch.setattr(cluster, "pool", pool)
    monkeypatch.setattr(suite, "measure_fit", counted)
    monkeypatch.setattr(lambdamart, "search_settings", counted_tuning)
    monkeypatch.setattr(measurement, "search_network", counted_search)
    return fits
