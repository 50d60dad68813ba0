"""Tracking of a fit in MLflow or TensorBoard: recipe, curves while they grow, results, report and bundle.

A fit does not depend on it. What cannot be sent is one note; it is sent at the end of the fit, if that succeeds.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import read_object

if TYPE_CHECKING:
    from listwright.training.progress import Progress
    from listwright.training.recipe.config import Recipe
    from listwright.training.reporting.report import Report

SEND_S = 5.0
"""Seconds between two times that points of curves are sent."""

WAIT_S = 60.0
"""Seconds until a server counts as down; the upload of the bundle has no such limit."""

MLFLOW_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Environment of MLflow, where the caller's has no other."""

MODEL_PARAMS = {"qid": "qid", "strategy": "auto"}
"""Parameters of a logged model's ``predict``, with their defaults."""

_PER_BATCH = 100
_TRAINING = {"mlflow.experimentKind": "custom_model_development"}  # so that its pages show curves
_GOES_ON = "the fit goes on; what is missing is sent at its end, if that succeeds"
_IN_PART = "the bundle is published, but not logged in full"


class Point(NamedTuple):
    """A point of a curve; ``ms`` is the time since 1970."""

    name: str
    step: int
    value: float
    ms: int


class Tracker:
    """Logs one fit under a tracking URI.

    Args:
        uri: of MLflow, or ``tensorboard:DIR``.

    Raises:
        RecipeError: if the URI is none, or its library is not installed.
    """

    def __init__(self, uri: str) -> None:
        self.uri = redact(uri)
        self._run: MlflowRun | TensorBoardRun
        try:
            self._run = TensorBoardRun(uri) if uri.startswith("tensorboard:") else MlflowRun(uri)
        except ModuleNotFoundError as error:
            extra = "tensorboard" if uri.startswith("tensorboard:") else "mlflow"
            needed = f"needs {error.name}: pip install 'listwright[{extra}]'"
            raise RecipeError(f"--track {self.uri}: {needed}") from error
        self._pending: list[Point] = []
        self._steps: dict[str, set[int]] = {}
        self._thread: Thread | None = None
        self._open = self._down = False
        self._last = 0.0

    def log(self, name: str, step: int, value: float) -> None:
        """Log a point of a curve; a step that the curve has already is skipped."""
        self._pending.append(Point(name, step, value, time.time_ns() // 1_000_000))
        if not self._down and time.monotonic() - self._last >= SEND_S:
            self._send(self._flush)
            self._last = time.monotonic()

    def follow(
        self,
        fit: Callable[[], Report],
        out: Path,
        recipe: Recipe,
        fingerprint: str,
        *,
        folder: Path,
        progress: Progress,
    ) -> Report:
        """Run a fit as one tracked run; a resumed fit continues that of the interrupted one.

        Args:
            fit: publishes the bundle, and calls :meth:`log`.
            out: where the bundle will stand.
            recipe: of the fit.
            fingerprint: sha256 of the data.
            folder: that an interrupted fit leaves; remembers the run.
            progress: gets the note if the server is down.
        """
        self._out, self._file, self._progress = out, folder / "tracking.json", progress
        self._recipe = recipe.model_dump(mode="json")
        self._params = {**flat(self._recipe), "data_fingerprint": f"sha256:{fingerprint}"}
        earlier = read_object(self._file) if self._file.exists() else {}
        self._id = str(earlier["run"]) if earlier.get("uri") == self.uri else None
        self._send(self._begin)
        try:
            report = fit()
        except BaseException as error:
            if not self._down:
                self._send(partial(self._stop, "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"))
            raise
        for name, value in results(report).items():
            self.log(name, 0, value)
        if self._send(self._flush, remedy=_IN_PART):
            self._send(self._finish, remedy=_IN_PART, limited=False)
        return report

    def _begin(self) -> None:
        self._id = self._run.open(self._out, self._id)
        if self._file.parent.exists():  # not after the fit
            temporary = self._file.with_suffix(".tmp")
            temporary.write_text(json.dumps({"uri": self.uri, "run": self._id}), encoding="utf-8")
            temporary.replace(self._file)
        self._run.describe(self._params, self._recipe)
        self._open = True

    def _flush(self) -> None:
        if not self._open:
            self._begin()
        points, new = list(self._pending), []
        for point in points:
            if point.name not in self._steps:
                self._steps[point.name] = self._run.steps_of(point.name)
            if point.step not in self._steps[point.name]:
                new.append(point)
        self._run.write(new)
        for point in new:
            self._steps[point.name].add(point.step)
        del self._pending[: len(points)]

    def _stop(self, status: str) -> None:
        self._flush()
        self._run.close(status)

    def _finish(self) -> None:
        self._run.upload(self._out)
        self._run.close("FINISHED")

    def _send(self, work: Callable[[], object], *, remedy: str = _GOES_ON, limited: bool = True) -> bool:
        """Run work in a thread and return whether it succeeded; the first failure is a note.

        Drivers of databases and stores wait as long as they like, whatever the limits of HTTP.

        Args:
            work: reaches the server.
            remedy: ends the note.
            limited: whether :data:`WAIT_S` ends the waiting.
        """
        seconds = WAIT_S if limited else None
        errors: list[Exception] = []

        def attempt() -> None:
            try:
                work()
            except Exception as error:  # of MLflow, SQLAlchemy, requests, boto3 and others
                errors.append(error)

        if self._thread is not None:
            self._thread.join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=attempt, daemon=True)
            self._thread.start()
            self._thread.join(seconds)
        if self._thread.is_alive():
            errors.append(TimeoutError(f"no answer in {WAIT_S:g} seconds"))
        if errors and not self._down:
            self._down = True
            reason = redact(str(errors[0]).partition("\n")[0])
            self._progress.remark(f"--track {self.uri} failed ({type(errors[0]).__name__}: {reason}): {remedy}")
        return not errors


class MlflowRun:
    """A run of MLflow, in the experiment ``$MLFLOW_EXPERIMENT_NAME``, or else of the bundle's name."""

    def __init__(self, uri: str) -> None:
        self._mlflow, self._uri = import_mlflow(), uri
        check_mlflow(uri)

    def open(self, out: Path, run: str | None) -> str:
        """Begin or continue a run; return its id."""
        self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
        self._continues = run is not None
        if run is not None:
            self._id = run
            self._client.update_run(run, status="RUNNING")
            return run
        bundle = out.absolute()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", bundle.parent.name)
        experiment = self._client.get_experiment_by_name(name)
        within = (
            self._client.create_experiment(name, tags=_TRAINING) if experiment is None else experiment.experiment_id
        )
        created = self._client.create_run(within, run_name=f"{bundle.parent.name}/{bundle.name}")
        self._id = str(created.info.run_id)
        return self._id

    def describe(self, params: Mapping[str, str], recipe: Mapping[str, Any]) -> None:
        """Log parameters and the recipe."""
        self._log("params", [self._mlflow.entities.Param(name, value) for name, value in params.items()])
        self._client.log_dict(self._id, recipe, "recipe.json")

    def steps_of(self, name: str) -> set[int]:
        """Return the steps that a curve has."""
        return {metric.step for metric in self._client.get_metric_history(self._id, name)} if self._continues else set()

    def write(self, points: Sequence[Point]) -> None:
        """Log points of curves."""
        metric = self._mlflow.entities.Metric
        self._log("metrics", [metric(point.name, point.value, point.ms, point.step) for point in points])

    def _log(self, kind: str, entries: Sequence[Any]) -> None:
        for first in range(0, len(entries), _PER_BATCH):
            self._client.log_batch(self._id, **{kind: entries[first : first + _PER_BATCH]})

    def upload(self, bundle: Path) -> None:
        """Log the report, and the bundle as a model that MLflow loads and registers."""
        self._client.log_artifact(self._id, bundle / "report.html")
        with tempfile.TemporaryDirectory() as folder:
            save_model(bundle, Path(folder) / "model")
            self._client.log_artifacts(self._id, Path(folder) / "model", "model")

    def close(self, status: str) -> None:
        """End the run: ``FINISHED``, ``FAILED`` or ``KILLED``."""
        self._client.set_terminated(self._id, status)


class TensorBoardRun:
    """A folder ``NAME/VERSION-TIME`` of TensorBoard's events."""

    def __init__(self, uri: str) -> None:
        self._folder = Path(uri.removeprefix("tensorboard:"))
        if not uri.removeprefix("tensorboard:"):
            raise RecipeError("--track tensorboard: names no folder: say tensorboard:DIR")
        self._events = import_module("tensorboard.backend.event_processing.event_accumulator")
        self._library = import_module("torch.utils.tensorboard")

    def open(self, out: Path, run: str | None) -> str:
        """Begin or continue a run; return its folder."""
        bundle = out.absolute()
        name = run or f"{bundle.parent.name}/{bundle.name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        folder = str(self._folder / name)
        self._earlier = self._events.EventAccumulator(folder, {"scalars": 0})
        if run is not None:
            self._earlier.Reload()
        self._writer = self._library.SummaryWriter(folder)
        return name

    def describe(self, params: Mapping[str, str], _recipe: Mapping[str, Any]) -> None:
        """Log parameters as a table of Markdown."""
        rows = "".join(f"| {name} | `{value}` |\n" for name, value in params.items())
        self._writer.add_text("recipe", f"| parameter | value |\n|---|---|\n{rows}")

    def steps_of(self, name: str) -> set[int]:
        """Return the steps that a curve has."""
        known = name in self._earlier.Tags()["scalars"]
        return {event.step for event in self._earlier.Scalars(name)} if known else set()

    def write(self, points: Sequence[Point]) -> None:
        """Log points of curves."""
        for point in points:
            self._writer.add_scalar(point.name, point.value, point.step, walltime=point.ms / 1000.0)
        self._writer.flush()

    def upload(self, bundle: Path) -> None:
        """Log where the bundle is."""
        self._writer.add_text("bundle", f"`{bundle}`, report: `{bundle / 'report.html'}`")

    def close(self, _status: str) -> None:
        """Close the file of events."""
        self._writer.close()


def import_mlflow() -> Any:
    """Import MLflow, which then gives up on a server soon and logs errors alone."""
    for name, value in MLFLOW_DEFAULTS.items():
        os.environ.setdefault(name, value)
    mlflow = import_module("mlflow")
    for name in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def check_mlflow(uri: str) -> None:
    """Raise RecipeError unless MLflow may know the URI; nothing is connected."""
    parts = urlsplit(uri)
    if parts.scheme == "databricks" or (parts.scheme in ("http", "https") and parts.hostname):
        return
    sqlalchemy = import_module("sqlalchemy")
    try:  # loads the driver, too
        sqlalchemy.create_engine(uri)
    except sqlalchemy.exc.ArgumentError as error:
        expected = "expected http://HOST:PORT, sqlite:///FILE, or another database that MLflow takes"
        raise RecipeError(f"--track {redact(uri)}: {expected}; listwright fit takes tensorboard:DIR, too") from error


def save_model(bundle: Path, folder: Path) -> None:
    """Save a bundle as a model of MLflow, which :mod:`listwright.training.pyfunc` loads."""
    mlflow, types = import_mlflow(), import_module("mlflow.types")
    options = [types.ParamSpec(name, types.DataType.string, value) for name, value in MODEL_PARAMS.items()]
    with warnings.catch_warnings(action="ignore"):  # advice on type hints and input examples
        mlflow.pyfunc.save_model(
            folder,
            loader_module="listwright.training.pyfunc",
            data_path=str(bundle.absolute()),
            pip_requirements=[f"listwright[training,mlflow]=={version('listwright')}"],
            signature=mlflow.models.ModelSignature(params=types.ParamSchema(options)),
        )


def flat(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return a recipe's fields by ``section.field``; values that are no numbers or names as JSON, without nulls."""
    fields = dict[str, object]()
    for name, value in recipe.items():
        fields |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
        if value not in (None, "")
    }


def results(report: Report) -> dict[str, float]:
    """Return the means on the test split by ``test/RANKER/METRIC``; ``default`` is the ranker that answers."""
    default = report.default["strategy"]
    return {
        f"test/{ranker}/{metric.name.replace('@', '_at_')}": metric.mean
        for metric in report.metrics
        for ranker in (metric.ranker, *(["default"] if metric.ranker == default else []))
    }


def redact(text: str) -> str:
    """Return a URI, or a text with one, without user, password and query, which may be secret."""
    return re.sub(r"\?\S*", "", re.sub(r"(?<=//)[^\s'\"]*@", "", text))
