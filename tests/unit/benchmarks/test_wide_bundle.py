"""What the speed benchmarks rank by is what their pages name."""

import numpy as np
import pytest

from benchmarks import wide_bundle
from benchmarks.load.service import check_routes
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.deadline import Deadline

FEATURES = 9


def small(folder, **options):
    """Publish the bundle with fewer lists and trees; return its reranker."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"TREES": 20, "LEAVES": 7, "_LISTS": 40, "_LENGTH": 20}.items():
            patch.setattr(wide_bundle, name, value)
        return bundle.load(wide_bundle.build(folder / "wide" / "1", features=FEATURES, **options)).reranker


def ranked(reranker, **options):
    return reranker.rerank(CandidateList(wide_bundle.rows(np.random.default_rng(7), 12, FEATURES)), **options)


@pytest.mark.nightly
def test_auto_means_lightgbm_and_qilcm(tmp_path):
    reranker = small(tmp_path)
    ranking = wide_bundle.check_route(ranked(reranker))
    assert (ranking.stage_reached, ranking.route.decided_by) == ("second_stage", "bundle")
    with pytest.raises(SystemExit, match="first_stage"):
        wide_bundle.check_route(ranked(reranker, strategy="first_stage"))
    late = ranked(reranker, deadline=Deadline(at=0.0))
    assert late.degraded
    with pytest.raises(SystemExit, match="deadline"):
        wide_bundle.check_route(late)


@pytest.mark.nightly
def test_with_specialists_auto_means_a_router_that_abstains_to_these(tmp_path):
    ranking = wide_bundle.check_route(ranked(small(tmp_path, specialists=2)))
    assert (ranking.stage_reached, ranking.route.decided_by) == ("second_stage", "abstained")
    assert "routing" in ranking.timings_ms


def route(strategy, count):
    labels = f'decided_by="bundle",model="wide",specialist="",strategy="{strategy}"'
    return f"listwright_routes_total{{{labels}}} {count}\n"


def test_the_routes_of_a_service_are_read_from_its_metrics():
    check_routes(route("qilcm", 12.0) + route("first_stage", 0.0))
    with pytest.raises(SystemExit, match="first_stage, qilcm"):
        check_routes(route("qilcm", 12.0) + route("first_stage", 1.0))
    with pytest.raises(SystemExit, match="nothing"):
        check_routes("")
    degraded = 'listwright_degraded_total{cause="failure",stage_reached="first_stage"} 12.0\n'
    with pytest.raises(SystemExit, match="12 answers"):
        check_routes(route("qilcm", 12.0) + degraded)
