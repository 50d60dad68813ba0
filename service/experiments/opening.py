"""Whether there are experiments."""

from __future__ import annotations

from listwright.service.bundles.served import Current
from listwright.service.experiments.protocol import Experiments
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry


def open_experiments(settings: Settings, telemetry: Telemetry, current: Current) -> Experiments | None:
    """The experiments that the settings name; None where they name none, and then nothing is imported for them.

    Args:
        settings: name the file.
        telemetry: of the process; gets the metrics.
        current: bundles that are served.
    """
    if settings.experiments is None:
        return None
    from listwright.service.experiments.live import LiveExperiments  # noqa: PLC0415 - see above

    return LiveExperiments(settings, telemetry, current)
