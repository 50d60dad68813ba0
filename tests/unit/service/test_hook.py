"""Hooks that misbehave. Slow ones wait for an event that the test sets; nothing here waits for a clock to be right."""

import functools
import gc
import sys
import threading
import types
import weakref

import numpy as np
import pytest

from listwright.ranking.errors import RoutingError
from listwright.ranking.router import Choice, Query
from listwright.service.hook import PASSED, HookError, IsolatedHook, load
from support.stand_ins import any_choice
from support.waiting import PATIENCE_S, until

QUERY = Query(np.zeros((2, 4), dtype=np.float32), {"device": "phone"}, np.zeros(2))
NOTHING_S = 0.001


@pytest.fixture
def isolated():
    """Makes isolated hooks, and ends their threads."""
    made = []

    def make(function, *, budget_s=PATIENCE_S, threads=1):
        made.append(IsolatedHook(function, budget_s=budget_s, threads=threads))
        return made[-1]

    yield make
    for one in made:
        one.close()


def kind_of(isolated):
    with pytest.raises(RoutingError) as fault:
        isolated(QUERY)
    return fault.value.kind


class Slow:
    """Hangs until the test lets it go."""

    def __init__(self):
        self.let_go = threading.Event()
        self.entered = threading.Semaphore(0)
        self.left = threading.Semaphore(0)

    def __call__(self, query):
        self.entered.release()
        assert self.let_go.wait(PATIENCE_S)
        self.left.release()
        return Choice(1)


@pytest.fixture
def slow():
    hanging = Slow()
    yield hanging
    hanging.let_go.set()


def test_a_choice_comes_back_and_the_query_goes_in(isolated):
    seen = []

    def choose(query):
        seen.append((query, threading.current_thread().daemon))
        return Choice(2, 0.75)

    asked = isolated(choose)
    assert [asked(QUERY) for _ in range(5)] == [Choice(2, 0.75)] * 5, "one thread, free again before it answers"
    assert seen == [(QUERY, True)] * 5


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, RoutingError])
def test_whatever_a_hook_raises_is_contained(isolated, error):
    calls = []

    def fail_once(query):
        calls.append(query)
        if len(calls) == 1:
            raise error("by-caller-17", "feature value 1234.5")
        return Choice(0)

    asked = isolated(fail_once)
    with pytest.raises(RoutingError) as fault:
        asked(QUERY)
    assert fault.value.kind == "hook_raised", "a kind of the hook's own could make the metrics grow"
    assert f"{error.__name__} at test_hook.py:" in str(fault.value)
    assert "1234.5" not in str(fault.value), "messages may quote values"
    assert asked(QUERY) == Choice(0), "the thread lives on"


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (1, "a int, not a Choice"),
        ((1, 0.5), "a tuple, not a Choice"),
        (any_choice(True), "specialist is a bool"),
        (any_choice(np.True_), "specialist is a bool"),
        (any_choice(1.0), "specialist is a float"),
        (any_choice("1"), "specialist is a str"),
        (any_choice(1, True), "confidence is a bool"),
        (any_choice(1, "0.5"), "confidence is a str"),
        (any_choice(1, float("nan")), "no probability"),
        (any_choice(1, np.float32("nan")), "no probability"),
        (any_choice(1, -0.01), "no probability"),
        (any_choice(1, 1.01), "no probability"),
        (any_choice(None, float("inf")), "no probability"),
        (any_choice(1, 10**400), "no probability"),
    ],
)
def test_what_is_no_decision_is_refused(isolated, returned, says):
    with pytest.raises(RoutingError, match=says) as fault:
        isolated(lambda query: returned)(QUERY)
    assert fault.value.kind == "hook_invalid"


@pytest.mark.parametrize(
    ("returned", "choice"),
    [
        (any_choice(np.int64(2), np.float32(0.5)), Choice(2, 0.5)),
        (Choice(0, 1), Choice(0, 1.0)),
        (Choice(None, 0.0), Choice(None, 0.0)),
    ],
)
def test_numbers_become_plain_ones(isolated, returned, choice):
    found = isolated(lambda query: returned)(QUERY)
    assert found == choice
    assert type(found.specialist) in (int, type(None))
    assert type(found.confidence) in (float, type(None))


def test_none_is_no_opinion(isolated):
    assert kind_of(isolated(lambda query: None)) == PASSED


def test_a_hook_is_waited_for_no_longer_than_its_budget(isolated, slow):
    asked = isolated(slow, budget_s=NOTHING_S)
    with pytest.raises(RoutingError, match="longer than 1 ms") as fault:
        asked(QUERY)
    assert fault.value.kind == "hook_timeout"
    assert not slow.left.acquire(blocking=False), "it hangs still"


def test_hung_threads_are_not_queued_behind_and_come_back(isolated, slow):
    asked = isolated(slow, budget_s=NOTHING_S, threads=2)
    assert [kind_of(asked), kind_of(asked)] == ["hook_timeout"] * 2
    for _ in range(2):
        assert slow.entered.acquire(timeout=PATIENCE_S)
    assert [kind_of(asked) for _ in range(3)] == ["hook_busy"] * 3
    assert not slow.entered.acquire(blocking=False), "nobody asked it"
    slow.let_go.set()
    for _ in range(2):
        assert slow.left.acquire(timeout=PATIENCE_S)
    until(lambda: len(asked._idle) == 2)
    asked._budget_s = PATIENCE_S
    assert asked(QUERY) == Choice(1)


def test_an_answer_that_comes_too_late_is_nobodys(isolated, slow):
    """It must not be taken for the answer to the next query."""
    hooks = iter([slow, lambda query: Choice(7)])

    def first_slow(query):
        return next(hooks)(query)

    asked = isolated(first_slow, budget_s=NOTHING_S)
    assert kind_of(asked) == "hook_timeout"
    slow.let_go.set()
    until(lambda: asked._idle)
    asked._budget_s = PATIENCE_S
    assert asked(QUERY) == Choice(7)


def test_one_hung_call_leaves_the_others_alone(isolated, slow):
    asked = isolated(lambda query: slow(query) if query is QUERY else Choice(0), threads=2)
    other = Query(QUERY.features, {}, QUERY.first_stage_scores)
    asked._budget_s = NOTHING_S
    assert kind_of(asked) == "hook_timeout"
    asked._budget_s = PATIENCE_S
    assert [asked(other) for _ in range(5)] == [Choice(0)] * 5


def test_threads_end_when_closed(isolated, slow):
    before = set(threading.enumerate())
    asked = isolated(slow, budget_s=NOTHING_S, threads=3)
    own = set(threading.enumerate()) - before
    assert {thread.name for thread in own} == {"hook-0", "hook-1", "hook-2"}
    assert kind_of(asked) == "hook_timeout"
    asked.close()
    slow.let_go.set()
    for thread in own:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_waiting_thread_keeps_no_list_in_memory(isolated):
    class Context(dict):
        pass

    context = Context()
    asked = isolated(lambda query: Choice(0))
    asked(Query(QUERY.features, context, QUERY.first_stage_scores))
    gone = weakref.ref(context)
    del context
    for _ in range(1000):  # the thread may still be on its way out of the call
        gc.collect()
        if gone() is None:
            break
        threading.Event().wait(0.001)
    assert gone() is None


class Routers:
    """A place for a dotted name."""

    @staticmethod
    def first(query):
        return Choice(0)


def test_a_hook_is_found_by_its_name(monkeypatch):
    module = types.ModuleType("shop_routers")
    module.first, module.Routers = Routers.first, Routers
    module.best = functools.partial(lambda number, query: Choice(number), 3)
    monkeypatch.setitem(sys.modules, "shop_routers", module)
    assert load("shop_routers:first") is load("shop_routers:Routers.first") is Routers.first
    assert load("shop_routers:best")(QUERY) == Choice(3)


@pytest.mark.parametrize(
    ("source", "attribute", "says"),
    [
        ("def other(query): ...", "choose", r"'broken' has no 'choose': name a callable"),
        ("choose = 3", "choose", r"is a int, which cannot be called"),
        ("async def choose(query): ...", "choose", r"is a coroutine function: define it with def"),
        ("def choose(): ...", "choose", r"cannot be called with a Query alone \(too many positional arguments\)"),
        ("def choose(features, context): ...", "choose", r"missing a required argument: 'context'"),
        ("class Router:\n    def __call__(self, query): ...", "Router", r"cannot be called with a Query alone"),
        ("raise RuntimeError('no file')", "choose", r"importing 'broken' raised RuntimeError: no file; put"),
        ("import sys; sys.exit(3)", "choose", r"importing 'broken' raised SystemExit: 3"),
        ("def choose(", "choose", r"importing 'broken' raised SyntaxError"),
        (
            None,
            "choose",
            r"raised ModuleNotFoundError: No module named 'broken'; put the module's folder on PYTHONPATH",
        ),
    ],
)
def test_what_cannot_be_a_hook_is_refused(tmp_path, monkeypatch, source, attribute, says):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    if source is not None:
        (tmp_path / "broken.py").write_text(source)
    with pytest.raises(HookError, match=says) as fault:
        load(f"broken:{attribute}")
    assert str(fault.value).startswith(f"'broken:{attribute}'")


@pytest.mark.parametrize("number", [-1, 100, 10**5000], ids=["below", "beyond", "endless"])
def test_a_number_that_no_bundle_has_is_refused_without_being_written(isolated, number):
    """Python refuses to write numbers of thousands of digits."""
    with pytest.raises(RoutingError, match="a specialist that no bundle has") as fault:
        isolated(lambda query: Choice(number))(QUERY)
    assert fault.value.kind == "unknown_specialist"


def test_an_exception_that_hides_its_place_costs_no_thread(isolated):
    class Hiding(Exception):
        __traceback__ = None

    def hook(query):
        raise Hiding

    asked = isolated(hook)
    for _ in range(8):
        with pytest.raises(RoutingError) as fault:
            asked(QUERY)
        assert fault.value.kind == "hook_raised"
