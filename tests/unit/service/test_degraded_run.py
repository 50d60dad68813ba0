from listwright.service.readiness import REST_S, RUN, DegradedRun
from support.stand_ins import Clock


def after(*, degraded):
    clock = Clock()
    run = DegradedRun(clock)
    for _ in range(degraded):
        run.note(degraded=True)
    return run, clock


def test_a_run_is_so_many_degraded_answers_one_after_another():
    run, _ = after(degraded=RUN - 1)
    assert not run.lasts
    run.note(degraded=True)
    assert run.lasts


def test_one_whole_answer_ends_it():
    run, _ = after(degraded=RUN)
    run.note(degraded=False)
    assert not run.lasts
    run.note(degraded=True)
    assert not run.lasts, "it starts anew"


def test_without_traffic_it_is_over_after_a_rest():
    run, clock = after(degraded=RUN)
    clock.now += REST_S - 0.1
    assert run.lasts
    clock.now += 0.1
    assert not run.lasts
    run.note(degraded=True)
    assert not run.lasts, "what comes after a rest is another run"


def test_a_run_is_logged_once(caplog):
    after(degraded=3 * RUN)
    assert [record.getMessage() for record in caplog.records] == [
        f"the last {RUN} answers were degraded: /readyz says 503"
    ]


def test_a_run_that_the_requests_are_to_blame_for_is_none(caplog):
    run, asked = DegradedRun(Clock()), []

    def is_own_fault():
        asked.append(True)
        return len(asked) > 2

    for _ in range(2 * RUN):
        run.note(degraded=True, is_own_fault=is_own_fault)
        assert not run.lasts
    for _ in range(RUN):
        run.note(degraded=True, is_own_fault=is_own_fault)
    assert run.lasts
    assert len(asked) == 3, "once at the end of each run"
