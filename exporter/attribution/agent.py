"""The child process that looks up who uses the GPUs: asks all sources, and answers with what they told last.

Run as `python -m exporter.attribution.agent NAME ANSWERS REQUESTS PARENT`: two descriptors and the pid of the parent.
"""

import os
import select
import sys
import time

from exporter.attribution import frames
from exporter.attribution.asker import PATIENCE_SECONDS, Asker
from exporter.attribution.merge import merge
from exporter.attribution.proc import Proc, Sights
from exporter.attribution.source import Findings, Question, Source
from exporter.attribution.sources import sources
from exporter.framing import encode
from exporter.model import Attribution, SourceStatus
from exporter.parentage import die_with

_PIECE_BYTES = 65536
_PAUSE_SECONDS = 2.0
"""Between two looks of one source; proc is looked at as often as anybody asks."""
_NEWS_SECONDS = 1.0
"""Between two answers to one question."""


class Agent:
    """The main thread, which waits for nobody but its parent."""

    def __init__(self, proc: Proc, others: list[Source], answers: int, requests: int) -> None:
        """Take two open descriptors, both blocking."""
        self._answers = answers
        self._requests = requests
        self._inbox = frames.requests()
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._proc = Asker(proc.name, proc.look, self._wake)
        self._others = [
            (source, Asker(source.name, source.look, self._wake, pause=_PAUSE_SECONDS)) for source in others
        ]
        self._question = Question()
        self._token: int | None = None
        self._asked_at = 0.0
        self._owed = False
        """The question has had no answer."""
        self._news = False
        """A source has answered since the last answer."""
        self._sent_at = 0.0
        self._sent: Attribution | None = None

    def run(self) -> None:
        """Serve until the parent asks for the end, or is gone."""
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._milliseconds(time.monotonic())):
                if descriptor == self._woken:
                    os.eventfd_read(self._woken)
                    self._news = True
                elif not self._take(os.read(self._requests, _PIECE_BYTES)):
                    return
            try:
                self._answer(time.monotonic())
            except BrokenPipeError:
                return

    def _take(self, data: bytes) -> bool:
        """Take a piece of what the parent says; false at the end."""
        if not data:
            return False
        newest: frames.Ask | None = None
        for request in self._inbox.feed(data):
            match request:
                case frames.Ask():
                    newest = request
                case frames.Shutdown():
                    return False
                case frames.Start():
                    pass
        if newest is not None:
            self._token, self._question = newest.token, newest.question
            self._asked_at, self._owed = time.monotonic(), True
            self._proc.ask(self._question)
            for _, asker in self._others:
                asker.ask(self._question)
        return True

    def _milliseconds(self, now: float) -> int | None:
        """Return how long nothing is to be done unless somebody speaks."""
        if self._owed:
            until = self._asked_at + PATIENCE_SECONDS
        elif self._news:
            until = self._sent_at + _NEWS_SECONDS
        else:
            return None
        return max(0, int((until - now) * 1000) + 1)

    def _answer(self, now: float) -> None:
        if self._token is None:
            return
        if self._owed:
            awaited = self._proc.worth_waiting() or any(asker.worth_waiting() for _, asker in self._others)
            if awaited and now - self._asked_at < PATIENCE_SECONDS:
                return
        elif not self._news or now - self._sent_at < _NEWS_SECONDS:
            return
        attribution = self._attribution()
        if self._owed or attribution != self._sent:
            data = memoryview(encode(frames.packed(self._token, attribution)))
            while data:
                data = data[os.write(self._answers, data) :]
            self._sent = attribution
        self._owed = self._news = False
        self._sent_at = now

    def _attribution(self) -> Attribution:
        seen = self._proc.told()
        sights = seen.found or Sights()
        reason = seen.reason or sights.trouble
        statuses = [SourceStatus(source=self._proc.name, up=not reason, reason=reason)]
        findings: list[Findings] = []
        for source, asker in self._others:
            told = asker.told()
            if told.absent:
                continue
            found = told.found
            reason = told.reason or (found.trouble if found is not None else "")
            statuses.append(SourceStatus(source=source.name, up=not reason, reason=reason))
            if found is not None:
                findings.append(found)
        return merge(self._question, sights, findings, tuple(statuses))

    def _wake(self) -> None:
        os.eventfd_write(self._woken, 1)


def main(arguments: list[str]) -> int:
    """Serve until the parent asks for the end or is gone."""
    answers, requests, parent = (int(argument) for argument in arguments[2:5])
    die_with(parent)
    inbox = frames.requests()
    start: frames.Request | None = None
    while start is None:
        # Byte by byte, so that nothing of what follows is taken from the agent.
        if not (data := os.read(requests, 1)):
            return os.EX_OK
        start = next(inbox.feed(data), None)
    if isinstance(start, frames.Start):
        proc = Proc(start.config.proc, start.root)
        Agent(proc, sources(start.config, start.root), answers, requests).run()
    sys.stdout.flush()
    # A thread may hang in a call, and nothing is to be tidied up.
    os._exit(os.EX_OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
