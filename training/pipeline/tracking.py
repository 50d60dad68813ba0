"""Tracking of a fit in MLflow or TensorBoard: recipe, curves while they grow, results, report and bundle.

A fit neither depends on it nor waits for it. What cannot be sent is one note; it is sent once the fit has ended.
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
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from filelock import FileLock

from listwright.ranking import bundle
from listwright.ranking.errors import BundleError, RecipeError
from listwright.ranking.manifest import Manifest
from listwright.ranking.plain_file import read_object
from listwright.ranking.stages import MANIFEST
from listwright.training.job_folder import write_json

if TYPE_CHECKING:
    from listwright.training.console.progress import Progress
    from listwright.training.recipe.config import Recipe
    from listwright.training.reporting.report import Report

SEND_S = 5.0
"""Seconds between two times that points of curves are sent."""

WAIT_S = 60.0
"""Seconds that an ended fit waits for what is on its way, and then for the rest; the bundle's upload has no limit.

Drivers of databases and stores wait as long as they like, whatever the limits of HTTP.
"""

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
_EXTRAS = {"mlflow": "mlflow", "sqlalchemy": "mlflow", "tensorboard": "tensorboard"}
_GOES_ON = "the fit goes on; what is missing is sent once more at its end"
_IN_PART = "the fit is not logged in full"


class Point(NamedTuple):
    """A point of a curve; ``ms`` is the time since 1970."""

    name: str
    step: int
    value: float
    ms: int


class Tracker:
    """Log of one fit under a tracking URI.

    Args:
        uri: URI of MLflow, or ``tensorboard:DIR``.

    Raises:
        RecipeError: if the URI is none, or its library is not installed.
    """

    def __init__(self, uri: str) -> None:
        self.uri = redact(uri)
        self._run: MlflowRun | TensorBoardRun
        try:
            self._run = TensorBoardRun(uri) if uri.startswith("tensorboard:") else MlflowRun(uri)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(str(error.name).partition(".")[0])
            remedy = f"pip install 'listwright[{extra}]'" if extra else "install it"
            raise RecipeError(f"--track {self.uri}: needs {error.name}: {remedy}") from error
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
            fit: Function that publishes the bundle, and calls :meth:`log`.
            out: Folder of the bundle once it is published.
            recipe: Recipe of the fit.
            fingerprint: SHA-256 of the data.
            folder: Folder of an interrupted fit, which remembers the run.
            progress: Receiver of the note if the server is down.
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
            status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
            self._send(partial(self._stop, status), remedy=_IN_PART, seconds=WAIT_S)
            raise
        for name, value in results(report).items():
            self.log(name, 0, value)
        if self._send(self._flush, remedy=_IN_PART, seconds=WAIT_S):
            self._send(self._finish, remedy=_IN_PART, seconds=None)
        return report

    def _begin(self) -> None:
        self._id = self._run.open(self._out, self._id)
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

    def _send(self, work: Callable[[], object], *, remedy: str = _GOES_ON, seconds: float | None = 0.0) -> bool:
        """Do work in a thread, unless earlier work goes on after so many seconds; return whether it has succeeded."""
        succeeded = Event()

        def attempt() -> None:
            try:
                work()
                succeeded.set()
            except Exception as error:  # of MLflow, SQLAlchemy, requests, boto3 and others
                self._note(error, remedy)

        if self._thread is not None:
            self._thread.join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=attempt, daemon=True)
            self._thread.start()
            self._thread.join(seconds)
        if seconds and self._thread.is_alive():
            self._note(TimeoutError(f"no answer in {seconds:g} seconds"), remedy)
        if self._id is not None and self._file.parent.exists():  # here, as the fit removes the folder
            write_json(self._file, {"uri": self.uri, "run": self._id})
        return succeeded.is_set()

    def _note(self, error: Exception, remedy: str) -> None:
        if not self._down:
            self._down = True
            reason = redact(str(error).partition("\n")[0])
            self._progress.remark(f"--track {self.uri} failed ({type(error).__name__}: {reason}): {remedy}")


class MlflowRun:
    """A run of MLflow, in the experiment ``$MLFLOW_EXPERIMENT_NAME``, or else of the bundle's name."""

    def __init__(self, uri: str) -> None:
        self._mlflow, self._uri = import_mlflow(), uri
        file = check_mlflow(uri)
        self._lock: AbstractContextManager[object] = nullcontext() if file is None else FileLock(f"{file}.lock")

    def open(self, out: Path, run: str | None) -> str:
        """Begin a run, or continue one that still exists; return its id."""
        bundle = out.absolute()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or bundle.parent.name
        with self._lock:  # two that make the tables of a SQLite file would destroy it
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            try:
                within = self._client.create_experiment(name, tags=_TRAINING)
            except self._mlflow.MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                within = self._client.get_experiment_by_name(name).experiment_id
            earlier = [] if run is None else self._client.search_runs([within], f"run_id = '{run}'")
            self._continues = bool(earlier)
            if earlier:
                self._client.update_run(run, status="RUNNING")
            else:
                earlier = [self._client.create_run(within, run_name=f"{bundle.parent.name}/{bundle.name}")]
        self._id = str(earlier[0].info.run_id)
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
        folder = uri.removeprefix("tensorboard:")
        if not folder.strip("/ ") or re.match("//[^/]", folder):
            raise RecipeError(f"--track {uri}: names no folder: write tensorboard:DIR")
        self._folder = Path(os.path.expanduser(folder))  # noqa: PTH111 # leaves ~NOBODY as it is
        self._events = import_module("tensorboard.backend.event_processing.event_accumulator")
        self._library = import_module("torch.utils.tensorboard")

    def open(self, out: Path, run: str | None) -> str:
        """Begin a run, or continue one that still exists; return its folder."""
        bundle = out.absolute()
        name = run or f"{bundle.parent.name}/{bundle.name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        folder = str(self._folder / name)
        self._earlier = self._events.EventAccumulator(folder, {"scalars": 0})
        if Path(folder).exists():
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


def fetch(model: str, out: Path) -> Manifest:
    """Copy a bundle out of MLflow's current tracking server, verify it, and publish it.

    Args:
        model: ``models:/NAME@ALIAS``, ``models:/NAME/VERSION`` or ``runs:/RUN/model``.
        out: folder to make; it is there whole, or not at all.

    Returns:
        The bundle's manifest.

    Raises:
        BundleError: if the model has no bundle, the bundle is damaged, or there is something at ``out``.
        MlflowException: if there is no such model, or the server does not answer.
        OSError: if the folder cannot be written.
    """
    if out.exists():
        raise BundleError(out, "exists already: a published version never changes; choose another folder")
    mlflow = import_mlflow()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", ignore_cleanup_errors=True) as own:
        folder = Path(mlflow.artifacts.download_artifacts(model, dst_path=own))
        bundles = [path.parent for path in folder.rglob(MANIFEST)]
        if len(bundles) != 1:
            fault = f"holds {len(bundles)} bundles: name a model that listwright fit --track has logged"
            raise BundleError(Path(model), fault)
        try:
            manifest = bundle.load(bundles[0]).manifest
        except BundleError as error:  # names a folder that is removed
            raise BundleError(Path(model) / error.file.name, error.reason) from None
        bundle.publish(bundles[0], out)
    return manifest


def import_mlflow() -> Any:
    """Import MLflow, which then gives up on a server soon and logs errors alone."""
    for name, value in MLFLOW_DEFAULTS.items():
        os.environ.setdefault(name, value)
    mlflow = import_module("mlflow")
    for name in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def check_mlflow(uri: str) -> Path | None:
    """Raise RecipeError unless MLflow may know the URI; return the file of SQLite. Nothing is connected."""
    sqlalchemy = import_module("sqlalchemy")
    try:
        parts = urlsplit(uri)
        server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if server or "databricks" in (uri, parts.scheme):
            return None
        url = sqlalchemy.create_engine(uri).url  # loads the driver, too
    except (ValueError, sqlalchemy.exc.ArgumentError) as error:
        expected = "expected http://HOST:PORT, sqlite:///FILE, databricks, or another database that MLflow takes"
        raise RecipeError(f"--track {redact(uri)}: {expected}; listwright fit takes tensorboard:DIR, too") from error
    if url.get_backend_name() != "sqlite":
        return None
    file = (url.database or "").strip()
    if not file or ":memory:" in file or url.query.get("mode") == "memory" or Path(file).is_dir():
        raise RecipeError(f"--track {redact(uri)}: names no file, so that the runs would be lost: write sqlite:///FILE")
    return Path(file)


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
    return re.sub(r"\?\S*", "", re.sub("(?<=//).*@", "", text))
