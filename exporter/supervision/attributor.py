"""The parent's side of attribution: keeps its agent, asks it whose the processes are, and publishes what it says.

The agent is not needed for anything else. One that is late, broken or gone is replaced; what it said last stands for a
while, with its sources down.
"""

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable
from random import Random

import msgspec

from exporter.attribution.frames import Answer, Ask, Shutdown, Start, answers, unpacked
from exporter.attribution.source import Question
from exporter.config import AttributionConfig
from exporter.framing import Frame, FrameError, encode
from exporter.model import Attribution, SourceStatus, World
from exporter.supervision.backoff import Backoff
from exporter.supervision.output import Line, Output
from exporter.supervision.process import ChildProcess
from exporter.supervision.questions import Questions, has_devices
from exporter.supervision.sourcelog import SourceLog
from exporter.supervision.watch import KILL_SECONDS, MAX_CHILDREN

TICK_SECONDS = 1.0
"""Between two questions at least: new processes and devices are asked about as soon as one of them is over."""
LONGEST_SECONDS = 30.0
"""Between two questions at most, whatever the interval of processes: allocations change without them."""
DEADLINE_SECONDS = 20.0
"""For an answer. The agent waits for no source, so a late one is not the fault of one."""
KEPT_SECONDS = 60.0
"""How long what was said last is published while there is no agent that answers."""
HEALTHY_SECONDS = 60.0
CLOSE_SECONDS = 1.0
_CLOSE_TICK_SECONDS = 0.01
_PIECES = 64
"""The most that is read at once."""

logger = logging.getLogger("exporter.attribution")


class _Agent(ChildProcess[Answer]):
    """Questions may be larger than a pipe: the rest is written when there is room."""

    def __init__(self, module: str, start: Start, output: Output) -> None:
        super().__init__(module, "attribution", answers(), output, _log_output)
        self.out = bytearray(encode(start))
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


class Attributor:
    """To be used in the main thread, as the agent ends with the thread that starts it."""

    def __init__(
        self,
        world: Callable[[], World],
        publish: Callable[[Attribution], None],
        config: AttributionConfig,
        interval: float,
        abandoned: Callable[[int], None],
        *,
        module: str = "exporter.attribution.agent",
        deadline: float = DEADLINE_SECONDS,
        most_abandoned: int = MAX_CHILDREN,
        random: Random | None = None,
    ) -> None:
        """Start nothing yet; needs a running event loop.

        `interval`: seconds between two reads of the processes. `abandoned` is called when the number of agents that
        cannot be killed has changed; with `most_abandoned` none is started. `module`: what the agent runs. `deadline`:
        seconds for an answer.
        """
        self._world = world
        self._publish = publish
        self._count_abandoned = abandoned
        self._start = Start(config=config)
        self._enabled = config.enabled
        self._interval = max(TICK_SECONDS, min(interval, LONGEST_SECONDS))
        self._module = module
        self._deadline = deadline
        self._most_abandoned = most_abandoned
        self._loop = asyncio.get_running_loop()
        self._retry = Backoff(1.0, 60.0, random or Random())  # noqa: S311 -- jitter
        self._output = Output(time.monotonic())
        self._agent: _Agent | None = None
        self._abandoned: list[_Agent] = []
        self._spawn_at = -math.inf
        self._spawned_at = -math.inf
        self._token = 0
        self._asked_at: float | None = None
        """When the question was asked that has no answer yet."""
        self._last_ask = -math.inf
        self._question = Question()
        self._questions = Questions()
        self._log = SourceLog()
        self._answer: Answer | None = None
        self._attribution: Attribution | None = None
        self._answered_at = -math.inf
        self._closed = False

    @property
    def agent_pid(self) -> int | None:
        return None if self._agent is None else self._agent.pid

    async def run(self) -> None:
        """Keep the agent until `close`. Never raises for what the agent does."""
        while not self._closed:
            try:
                self._tick(time.monotonic())
            except Exception:  # readings are worth more than whose they are
                logger.exception("attribution cannot be kept up")
                self._end("its keeper broke")
            await asyncio.sleep(TICK_SECONDS)

    async def close(self) -> None:
        """End the agent within 1.2 s: by asking, then by SIGKILL, and by leaving behind what survives that."""
        self._closed = True
        for left in self._abandoned:
            left.close()
        agent = self._agent
        if agent is None:
            return
        agent.send(Shutdown())
        for _ in range(int(CLOSE_SECONDS / _CLOSE_TICK_SECONDS)):
            if agent.status() is not None:
                break
            await asyncio.sleep(_CLOSE_TICK_SECONDS)
        if agent.status() is None:
            agent.kill()
            await asyncio.sleep(_CLOSE_TICK_SECONDS)
            agent.status()
        agent.close()
        self._agent = None

    def _tick(self, now: float) -> None:
        self._reap_abandoned()
        agent = self._agent
        if agent is not None:
            self._reap(agent, now)
            if self._late(now) and agent.killed_at is None:
                self._on_answer(agent)  # it may have come while this process stood still
            if self._late(now):
                self._end(f"it has not answered for more than {self._deadline:g} seconds")
            elif self._answered_at > self._spawned_at and now - self._spawned_at > HEALTHY_SECONDS:
                self._retry.reset()
        may_start = self._agent is None and len(self._abandoned) < self._most_abandoned
        if may_start and self._enabled and now >= self._spawn_at and has_devices(self._world()):
            self._spawn(now)
        agent = self._agent
        if agent is not None and agent.killed_at is None and self._asked_at is None:
            self._ask(agent, now)
        if self._answer is None and now - self._answered_at > KEPT_SECONDS:
            self._forget_claims()

    def _late(self, now: float) -> bool:
        return self._asked_at is not None and now - self._asked_at > self._deadline

    def _spawn(self, now: float) -> None:
        try:
            agent = _Agent(self._module, self._start, self._output)
        except OSError as error:
            self._down(f"it cannot be started: {error}", now)
            return
        self._agent, self._spawned_at = agent, now
        self._loop.add_reader(agent.reports, self._on_answer, agent)

    def _ask(self, agent: _Agent, now: float) -> None:
        question = self._questions.of(self._world())
        if question == self._question and now - self._last_ask < self._interval:
            return
        self._question = question
        self._token += 1
        self._asked_at = self._last_ask = now
        agent.send(Ask(self._token, question))
        if agent.out:
            self._loop.add_writer(agent.requests, self._on_room, agent)

    def _on_room(self, agent: _Agent) -> None:
        agent.write()
        if not agent.out:
            self._loop.remove_writer(agent.requests)

    def _on_answer(self, agent: _Agent) -> None:
        try:
            for _ in range(_PIECES):
                heard = agent.hear()
                for answer in heard.reports:
                    self._take(answer, time.monotonic())
                if heard.ended:
                    self._loop.remove_reader(agent.reports)
                if heard.emptied:
                    return
        except (FrameError, IndexError) as error:
            self._end(f"it is not understood: {error}")

    def _take(self, answer: Answer, now: float) -> None:
        if answer.token == self._token:
            self._asked_at = None
        self._answered_at = now
        same = self._answer is not None and msgspec.structs.replace(self._answer, token=answer.token) == answer
        self._answer = answer
        if not same:
            self._told(unpacked(answer))

    def _told(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._log.tell(attribution.sources, time.monotonic())
        self._publish(attribution)

    def _down(self, reason: str, now: float) -> None:
        """Publish that nobody tells, and start another agent later."""
        self._spawn_at = now + self._retry.next()
        self._asked_at = self._answer = None
        self._last_ask = -math.inf
        known = self._attribution or Attribution(sources=(SourceStatus(source="proc", up=False),))
        reason = f"the process that asks is down: {reason}"
        sources = tuple(msgspec.structs.replace(status, up=False, reason=reason) for status in known.sources)
        self._told(msgspec.structs.replace(known, sources=sources))

    def _forget_claims(self) -> None:
        known = self._attribution
        if known is not None and (known.owners or known.allocations):
            self._told(Attribution(sources=known.sources))

    def _end(self, reason: str) -> None:
        """Kill the agent; it is replaced when it is gone, so that there is never more than one that can be killed."""
        agent = self._agent
        if agent is not None and agent.killed_at is None:
            now = agent.killed_at = time.monotonic()
            agent.kill()
            self._loop.remove_reader(agent.reports)
            self._down(reason, now)

    def _reap(self, agent: _Agent, now: float) -> None:
        status = agent.status()
        if status is not None:
            self._agent = None
            agent.last_words()
            agent.close()
            if agent.killed_at is None:
                end = f"it was ended by signal {-status}" if status < 0 else f"it ended with {status}"
                self._down(end, now)
        elif agent.killed_at is not None and now - agent.killed_at > KILL_SECONDS:
            self._agent = None
            self._abandoned.append(agent)
            self._tell_abandoned()
            if len(self._abandoned) >= self._most_abandoned:
                self._down(f"{len(self._abandoned)} that were started cannot be killed", now)

    def _reap_abandoned(self) -> None:
        ended = [agent for agent in self._abandoned if agent.status() is not None]
        for agent in ended:
            self._abandoned.remove(agent)
            agent.last_words()
            agent.close()
        if ended:
            self._tell_abandoned()

    def _tell_abandoned(self) -> None:
        count = len(self._abandoned)
        level = logging.WARNING if count else logging.INFO
        logger.log(level, "agents of attribution that cannot be killed", extra={"count": count})
        self._count_abandoned(count)


def _log_output(lines: list[Line]) -> None:
    for line in lines:
        logger.log(line.level, "attribution printed: %s", line.text)
