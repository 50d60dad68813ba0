"""Latency and refusals against load, for every balancer and both kinds of arrivals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.capacity.plan import Target, against_load
from benchmarks.capacity.simulated.arrivals import ARRIVALS
from benchmarks.capacity.simulated.balancers import BALANCERS, Balancer
from benchmarks.science.drawing import GREY, page, plain

REPLICAS = 8
LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.2)
"""Lists that arrive, over what the replicas can answer."""

LISTS = 100_000
"""Of each point: ten bursts and more at the loads where they matter."""

COLOURS: dict[Balancer, str] = {
    "random": "#e5534b",
    "round robin": "#bf8700",
    "least connections": "#2f81f7",
    "power of two choices": "#2da44e",
}


def curves(target: Target) -> list[dict[str, object]]:
    """Simulated points: :data:`REPLICAS` replicas, the same arrivals and service times behind each balancer."""
    whole = REPLICAS / target.times.cpu_s
    return [
        {
            "arrivals": kind,
            "balancer": balancer,
            "load": load,
            **against_load(replace(target, balancer=balancer), load * whole, REPLICAS, kind, count=LISTS),
        }
        for kind in ARRIVALS
        for balancer in BALANCERS
        for load in LOADS
    ]


def figure(result: dict[str, Any], path: Path) -> Path:
    """The 99th percentile above, the refused share below; left and right the two kinds of arrivals."""
    with page(path, 8.0, 5.6, salt="capacity") as drawn:
        axes = drawn.subplots(2, 2, sharex=True, sharey="row")
        for column, kind in enumerate(ARRIVALS):
            for balancer in BALANCERS:
                points = [
                    point for point in result["curves"] if (point["arrivals"], point["balancer"]) == (kind, balancer)
                ]
                loads = [100 * point["load"] for point in points]
                style = {"color": COLOURS[balancer], "marker": "o", "markersize": 3, "linewidth": 1.4}
                axes[0, column].plot(loads, [point["p99_ms"] for point in points], label=balancer, **style)
                axes[1, column].plot(loads, [100 * point["refused"] for point in points], **style)
            axes[0, column].axhline(result["p99_ms"], color=GREY, linewidth=1.0, linestyle=(0, (2, 3)))
            axes[0, column].set_title(f"{kind} arrivals", color=GREY, fontsize=10)
            axes[1, column].set_xlabel(f"load of {REPLICAS} replicas, %")
        axes[0, 0].set(ylabel="99th percentile, ms", yscale="log")
        axes[0, 0].set_yticks([5, 10, 20, 50, 100])
        axes[0, 0].yaxis.set_major_formatter("{x:g}")
        axes[1, 0].set_ylabel("refused, %")
        for one in axes.flat:
            plain(one)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, labelcolor=GREY)
    return path
