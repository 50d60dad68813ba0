"""What ``GET /info`` says of experiments on traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from listwright.service.participation import Kind

if TYPE_CHECKING:
    from listwright.service.experiments.live import LiveExperiments


class ExperimentInfo(BaseModel):
    """One experiment of the file."""

    name: str
    kind: Kind
    control: str
    challenger: str | None
    share: Annotated[float, Field(description="of control's traffic that takes part")]
    running: bool
    reason: Annotated[str | None, Field(description="why it does not run; null if it does")]


class ExperimentsInfo(BaseModel):
    """The experiments of this worker process."""

    experiments: list[ExperimentInfo]
    refused: Annotated[str | None, Field(description="why the file, as it is now, is not used; null if it is")]
    killed: Annotated[str | None, Field(description="why no experiment may run; null if they may")]


def experiments_info(experiments: LiveExperiments | None) -> ExperimentsInfo | None:
    """What runs at this moment; None where the settings name no file."""
    if experiments is None:
        return None
    report = experiments.report()
    return ExperimentsInfo(
        experiments=[ExperimentInfo(running=one.reason is None, **one._asdict()) for one in report.experiments],
        refused=report.refused,
        killed=report.killed,
    )
