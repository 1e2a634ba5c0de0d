"""One source in its thread. The clock is the test's; threads are waited for by what they say, never by time."""

import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

from exporter.attribution.asker import PATIENCE_SECONDS, SILENT_SECONDS, Asker, Told
from exporter.attribution.source import NOT_YET, Held, NothingToAskError, Question, SourceError
from exporter.model import Device

LONG = 10.0


def question(name: str) -> Question:
    return Question(held=(Held(device=Device(vendor="nvidia", key=name)),))


class Stage:
    """An asker over a source that does what the test puts into `orders`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.orders: Queue[Callable[[Question], str]] = Queue()
        self.looking = threading.Semaphore(0)
        self.answered = threading.Semaphore(0)
        self.asker: Asker[str] = Asker("test", self._look, self.answered.release, clock=lambda: self.now)

    def _look(self, asked: Question) -> str:
        self.looking.release()
        return self.orders.get(timeout=LONG)(asked)

    def ask(self, name: str) -> None:
        self.asker.ask(question(name))

    def let(self, order: Callable[[Question], str]) -> None:
        """Let the look that is under way, or the next one, end like this."""
        self.orders.put(order)
        assert self.answered.acquire(timeout=LONG)

    def told(self) -> Told[str]:
        return self.asker.told()


def key(asked: Question) -> str:
    return asked.held[0].device.key


def fails(_: Question) -> str:
    raise SourceError("the socket is missing")


def breaks(_: Question) -> str:
    raise KeyError("oops")


def absent(_: Question) -> str:
    raise NothingToAskError


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.orders.put(key)  # lets a thread go that still looks


def test_before_the_first_answer(stage: Stage) -> None:
    assert stage.told() == Told(None, NOT_YET)
    assert not stage.asker.worth_waiting()
    stage.ask("a")
    assert stage.looking.acquire(timeout=LONG)
    assert stage.asker.worth_waiting()
    assert stage.told() == Told(None, NOT_YET)


def test_answer(stage: Stage) -> None:
    stage.ask("a")
    stage.let(key)
    assert stage.told() == Told("a", "")
    assert not stage.asker.worth_waiting()


def test_questions_that_come_meanwhile_are_taken_together(stage: Stage) -> None:
    stage.ask("a")
    assert stage.looking.acquire(timeout=LONG)
    for name in ("b", "c", "d"):
        stage.ask(name)
    stage.let(key)
    assert stage.told().found == "a"
    stage.let(key)
    assert stage.told().found == "d"
    assert not stage.asker.worth_waiting()
    assert not stage.looking.acquire(blocking=False) or not stage.looking.acquire(blocking=False)


def test_failure_keeps_for_a_while_what_was_said(stage: Stage) -> None:
    stage.ask("a")
    stage.let(key)
    stage.now += 10
    stage.ask("b")
    stage.let(fails)
    assert stage.told() == Told("a", "the socket is missing")
    stage.now += SILENT_SECONDS
    assert stage.told() == Told(None, "the socket is missing")
    stage.ask("c")
    stage.let(key)
    assert stage.told() == Told("c", "")


def test_broken_source_is_no_end(stage: Stage) -> None:
    stage.ask("a")
    stage.let(breaks)
    assert stage.told() == Told(None, "it broke: KeyError: 'oops'")
    stage.ask("b")
    stage.let(key)
    assert stage.told() == Told("b", "")


def test_long_reason_is_cut(stage: Stage) -> None:
    def fails_at_length(_: Question) -> str:
        raise SourceError("x" * 10_000)

    stage.ask("a")
    stage.let(fails_at_length)
    assert len(stage.told().reason) == 303


def test_nothing_to_ask(stage: Stage) -> None:
    stage.ask("a")
    stage.let(absent)
    assert stage.told() == Told(None, "", absent=True)
    stage.ask("b")
    stage.let(key)
    assert stage.told() == Told("b", "")


def test_hung_source_is_not_waited_for_and_down_after_a_while(stage: Stage) -> None:
    stage.ask("a")
    stage.let(key)
    stage.looking.acquire(timeout=LONG)
    stage.ask("b")
    assert stage.looking.acquire(timeout=LONG)
    assert stage.asker.worth_waiting()
    stage.now += PATIENCE_SECONDS * 1.5
    assert not stage.asker.worth_waiting()
    assert stage.told() == Told("a", "")
    stage.now += SILENT_SECONDS
    stage.ask("c")
    assert stage.told() == Told(None, f"it has not answered for more than {SILENT_SECONDS:.0f} seconds")
    assert not stage.asker.worth_waiting()


def test_hung_source_that_comes_back_is_up_again(stage: Stage) -> None:
    stage.ask("a")
    assert stage.looking.acquire(timeout=LONG)
    stage.now += SILENT_SECONDS * 2
    assert stage.told().reason
    stage.let(key)
    assert stage.told() == Told("a", "")


def test_slow_source_is_not_waited_for_until_it_is_quick_again(stage: Stage) -> None:
    stage.ask("a")
    assert stage.looking.acquire(timeout=LONG)
    stage.now += 5
    stage.let(key)
    stage.ask("b")
    assert stage.looking.acquire(timeout=LONG)
    assert not stage.asker.worth_waiting()
    stage.let(key)
    stage.ask("c")
    assert stage.asker.worth_waiting()


def test_source_that_is_not_asked_does_not_grow_old(stage: Stage) -> None:
    stage.ask("a")
    stage.let(key)
    stage.now += 3600
    assert stage.told() == Told("a", "")
