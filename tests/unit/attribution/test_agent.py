"""The agent over real pipes and threads, with sources that do as the test says."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.attribution import workloads
from exporter.attribution.agent import Agent
from exporter.attribution.frames import Answer, Ask, Shutdown, answers
from exporter.attribution.proc import Proc
from exporter.attribution.source import Findings, Grant, Held, NothingToAskError, Process, Question, SourceError
from exporter.framing import encode
from exporter.model import Device, SourceStatus
from tests.unit.attribution.hosts import write_host, write_process

DEVICE = Device(vendor="nvidia", key="GPU-1")
QUESTION = Question(held=(Held(device=DEVICE, processes=(Process(77, 5000),)),))
LONG = 10.0


class Says:
    """A source that does what it was made with."""

    def __init__(self, name: str, act: Callable[[], Findings]) -> None:
        self.name = name
        self._act = act

    def look(self, question: Question) -> Findings:
        assert question.held
        return self._act()


def grant(job: str) -> Findings:
    return Findings(grants=(Grant(workload=workloads.slurm(job), device="GPU-1"),))


def broken() -> Findings:
    raise RuntimeError("oops")


def absent() -> Findings:
    raise NothingToAskError


class Session:
    def __init__(self, root: Path, *sources: Says) -> None:
        proc = write_host(root)
        write_process(proc, 77, "0::/system.slice/ollama.service\n")
        self._answers, answer_end = os.pipe()
        request_end, self._requests = os.pipe()
        self._inbox = answers()
        self._ends = (answer_end, request_end)
        agent = Agent(Proc(str(proc), str(root)), list(sources), answer_end, request_end)
        self._thread = threading.Thread(target=agent.run, daemon=True)
        self._thread.start()

    def ask(self, token: int, question: Question = QUESTION) -> None:
        os.write(self._requests, encode(Ask(token, question)))

    def hear(self) -> Answer:
        while True:
            for answer in self._inbox.feed(os.read(self._answers, 65536)):
                return answer

    def end(self) -> None:
        os.write(self._requests, encode(Shutdown()))
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        for descriptor in (self._answers, self._requests, *self._ends):
            os.close(descriptor)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    made: list[Session] = []

    def begin(*sources: Says) -> Session:
        made.append(Session(tmp_path, *sources))
        return made[-1]

    yield begin
    for session in made:
        session.end()


def keys(answer: Answer) -> list[str]:
    return [workload.key for workload in answer.workloads]


def statuses(answer: Answer) -> dict[str, SourceStatus]:
    return {status.source: status for status in answer.sources}


def test_answer_has_what_all_sources_tell(start: Callable[..., Session]) -> None:
    session = start(Says("kubelet", lambda: grant("1")), Says("pod_logs", Findings))
    session.ask(7)
    answer = session.hear()
    assert answer.token == 7
    assert keys(answer) == ["slurm/1", "service/ollama.service"]
    assert answer.sources == (
        SourceStatus(source="proc", up=True),
        SourceStatus(source="kubelet", up=True),
        SourceStatus(source="pod_logs", up=True),
    )


def test_source_without_anything_to_ask_is_not_mentioned(start: Callable[..., Session]) -> None:
    session = start(Says("kubelet", absent))
    session.ask(1)
    assert [status.source for status in session.hear().sources] == ["proc"]


def test_broken_source_hides_no_other(start: Callable[..., Session]) -> None:
    session = start(Says("slurm", broken), Says("job_files", lambda: grant("1")))
    session.ask(1)
    answer = session.hear()
    assert keys(answer) == ["slurm/1", "service/ollama.service"]
    assert statuses(answer)["slurm"].reason == "it broke: RuntimeError: oops"
    assert statuses(answer)["job_files"].up


def test_what_a_source_could_not_tell_is_said(start: Callable[..., Session]) -> None:
    session = start(Says("job_files", lambda: Findings(trouble="a file is broken", unplaced_devices=2)))
    session.ask(1)
    answer = session.hear()
    assert statuses(answer)["job_files"] == SourceStatus(source="job_files", up=False, reason="a file is broken")
    assert answer.unplaced_devices == 2


def test_hung_source_delays_one_answer_and_no_other(start: Callable[..., Session]) -> None:
    hang = threading.Event()

    def hangs() -> Findings:
        hang.wait(LONG * 3)
        return grant("2")

    session = start(Says("kubelet", hangs), Says("job_files", lambda: grant("1")))
    session.ask(1)
    first = session.hear()
    assert keys(first) == ["slurm/1", "service/ollama.service"]
    assert not statuses(first)["kubelet"].up

    began = time.monotonic()
    session.ask(2)
    assert session.hear().token == 2
    assert time.monotonic() - began < 0.9  # not the patience that the first answer had

    hang.set()
    news = session.hear()  # unasked, as soon as it is there
    assert news.token == 2
    assert set(keys(news)) == {"slurm/1", "slurm/2", "service/ollama.service"}
    assert statuses(news)["kubelet"].up


def test_source_that_fails_is_down(start: Callable[..., Session]) -> None:
    def fails() -> Findings:
        raise SourceError("the socket is missing")

    session = start(Says("kubelet", fails))
    session.ask(1)
    assert statuses(session.hear())["kubelet"] == SourceStatus(
        source="kubelet", up=False, reason="the socket is missing"
    )
