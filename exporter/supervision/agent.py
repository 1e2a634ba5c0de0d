"""The parent's hold on an agent of attribution, and on those that cannot be killed."""

import contextlib
import logging
import os
from collections.abc import Callable

from exporter.attribution.frames import Answer, Start, answers
from exporter.framing import Frame, encode
from exporter.supervision.output import Line, Output
from exporter.supervision.process import ChildProcess

logger = logging.getLogger("exporter.attribution")


class Agent(ChildProcess[Answer]):
    """Questions may be larger than a pipe: the rest is written when there is room."""

    def __init__(self, module: str, start: Start, output: Output, now: float) -> None:
        super().__init__(module, "attribution", answers(), output, _log_output)
        self.out = bytearray(encode(start))
        self.born = now
        self.killed_at: float | None = None

    def send(self, frame: Frame) -> None:
        self.out += encode(frame)
        self.write()

    def write(self) -> None:
        """Write what there is room for; an agent that is gone is noticed elsewhere."""
        with contextlib.suppress(BlockingIOError):
            try:
                while self.out:
                    del self.out[: os.write(self.requests, self.out)]
            except BrokenPipeError:
                self.out.clear()


class LeftBehind:
    """Agents that were killed and do not end. `count` is called when their number has changed."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._agents: list[Agent] = []
        self._count = count

    def __len__(self) -> int:
        return len(self._agents)

    def add(self, agent: Agent) -> None:
        self._agents.append(agent)
        self._tell()

    def reap(self) -> None:
        """Let go of those that have ended after all."""
        ended = [agent for agent in self._agents if agent.status() is not None]
        for agent in ended:
            self._agents.remove(agent)
            agent.last_words()
            agent.close()
        if ended:
            self._tell()

    def close(self) -> None:
        for agent in self._agents:
            agent.close()

    def _tell(self) -> None:
        count = len(self._agents)
        level = logging.WARNING if count else logging.INFO
        logger.log(level, "agents of attribution that cannot be killed", extra={"count": count})
        self._count(count)


def _log_output(lines: list[Line]) -> None:
    for line in lines:
        logger.log(line.level, "attribution printed: %s", line.text)
