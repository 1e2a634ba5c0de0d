"""The parent's side of attribution: keeps its agent, asks it whose the processes are, and publishes what it says.

The agent is not needed for anything else. One that is late, broken or gone is replaced; what it said last stands for a
while, with its sources down. One that has nothing to do is ended, and what it said stands until there is another.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from random import Random

import msgspec

from exporter.attribution.frames import Answer, Ask, Shutdown, Start, unpacked
from exporter.attribution.source import Question
from exporter.framing import FrameError
from exporter.model import Attribution, SourceStatus, World
from exporter.pace import pause
from exporter.settings import AttributionConfig
from exporter.supervision.agent import Agent, LeftBehind
from exporter.supervision.backoff import Backoff
from exporter.supervision.need import PROC, TERMS, Need, Terms, is_complete, worn
from exporter.supervision.output import Output
from exporter.supervision.questions import Questions, has_devices
from exporter.supervision.sourcelog import SourceLog
from exporter.supervision.watch import KILL_SECONDS, MAX_CHILDREN

LONGEST_SECONDS = 30.0
"""Between two questions at most, whatever the interval of processes: allocations change without them."""
DEADLINE_SECONDS = 20.0
"""For an answer. The agent waits for no source, so a late one is not the fault of one."""
HEALTHY_SECONDS = 60.0
CLOSE_SECONDS = 1.0
_CLOSE_TICK_SECONDS = 0.01
_PIECES = 64
"""The most that is read at once."""

logger = logging.getLogger("exporter.attribution")


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
        terms: Terms = TERMS,
        module: str = "exporter.attribution.agent",
        deadline: float = DEADLINE_SECONDS,
        most_abandoned: int = MAX_CHILDREN,
        random: Random | None = None,
    ) -> None:
        """Start nothing yet; needs a running event loop.

        `interval`: seconds between two reads of the processes. `abandoned` is called when the number of agents that
        cannot be killed has changed; with `most_abandoned` none is started. `terms`: when there is to be an agent.
        `module`: what it runs. `deadline`: seconds for an answer.
        """
        self._world = world
        self._publish = publish
        self._start = Start(config=config)
        self._enabled = config.enabled
        self._interval = max(terms.tick_seconds, min(interval, LONGEST_SECONDS))
        self._module = module
        self._deadline = deadline
        self._most_abandoned = most_abandoned
        self._loop = asyncio.get_running_loop()
        self._retry = Backoff(1.0, 60.0, random or Random())  # noqa: S311 -- jitter
        self._output = Output(time.monotonic())
        self._agent: Agent | None = None
        self._left = LeftBehind(abandoned)
        self._spawn_at = -math.inf
        self._measure_at = -math.inf
        self._terms = terms
        self._need = Need(terms)
        self._token = 0
        self._asked_at: float | None = None
        """When the question was asked that has no answer yet."""
        self._last_ask = -math.inf
        self._question = Question()
        self._is_new = True
        """The agent was not asked the question yet."""
        self._questions = Questions()
        self._log = SourceLog()
        self._answer: Answer | None = None
        """What stands; None: nothing, or it stands for a while only."""
        self._follows = False
        """The agent has told nothing yet, and what another one told stands."""
        self._attribution: Attribution | None = None
        self._answered_at = -math.inf
        self._closed = False

    @property
    def agent_pid(self) -> int | None:
        return None if self._agent is None else self._agent.pid

    async def run(self) -> None:
        """Keep the agent until `close`; at once over where it is off. Never raises for what the agent does."""
        while self._enabled and not self._closed:
            try:
                self._tick(time.monotonic())
            except Exception:  # readings are worth more than whose they are
                logger.exception("attribution cannot be kept up")
                self._end("its keeper broke")
            await pause(self._terms.tick_seconds)

    async def close(self) -> None:
        """End the agent within 1.2 s: by asking, then by SIGKILL, and by leaving behind what survives that."""
        self._closed = True
        self._left.close()
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
        self._left.reap()
        if self._agent is not None:
            self._look_after(self._agent, now)
        world = self._world()
        question = self._questions.of(world)
        if question != self._question:
            self._question, self._is_new = question, True
            self._need.changed(now)
        may_start = self._agent is None and len(self._left) < self._most_abandoned and now >= self._spawn_at
        if may_start and has_devices(world) and self._need.lasts(now):
            self._spawn(now)
        agent = self._agent
        if agent is not None and agent.killed_at is None and self._asked_at is None:
            if self._is_new:
                self._ask(agent, now)
            elif self._is_over(agent, now):
                self._kill(agent, now)
            elif now - self._last_ask >= self._interval:
                self._ask(agent, now)
        if self._answer is None and now - self._answered_at > self._terms.kept_seconds:
            self._forget_claims()

    def _look_after(self, agent: Agent, now: float) -> None:
        self._reap(agent, now)
        if self._late(now) and agent.killed_at is None:
            self._on_answer(agent)  # it may have come while this process stood still
        if self._late(now):
            self._end(f"it has not answered for more than {self._deadline:g} seconds")
        elif self._answered_at > agent.born and now - agent.born > HEALTHY_SECONDS:
            self._retry.reset()

    def _is_over(self, agent: Agent, now: float) -> bool:
        """Tell whether to end an agent: it has nothing to do, or another one is to take its place."""
        if not self._need.lasts(now):
            self._on_answer(agent)  # as above
        if not self._need.lasts(now):
            logger.debug("nothing is to be asked for a while")
            self._need.left(now)
            return True
        memory = None
        if now >= self._measure_at:
            self._measure_at, memory = now + self._terms.measure_seconds, agent.usage().memory_bytes
        if reason := worn(self._terms, now - agent.born, memory):
            logger.info("the process that asks is replaced", extra={"reason": reason})
        return bool(reason)

    def _late(self, now: float) -> bool:
        return self._asked_at is not None and now - self._asked_at > self._deadline

    def _spawn(self, now: float) -> None:
        self._need.begun()
        self._follows = self._answer is not None
        if self._follows:
            self._answered_at = now  # until here it stood without anybody who could have said it again
        try:
            agent = Agent(self._module, self._start, self._output, now)
        except OSError as error:
            self._down(f"it cannot be started: {error}", now)
            return
        self._agent, self._is_new = agent, True
        self._measure_at = now + self._terms.measure_seconds
        self._loop.add_reader(agent.reports, self._on_answer, agent)

    def _ask(self, agent: Agent, now: float) -> None:
        self._is_new = False
        self._token += 1
        self._asked_at = self._last_ask = now
        agent.send(Ask(self._token, self._question))
        if agent.out:
            self._loop.add_writer(agent.requests, self._on_room, agent)

    def _on_room(self, agent: Agent) -> None:
        agent.write()
        if not agent.out:
            self._loop.remove_writer(agent.requests)

    def _on_answer(self, agent: Agent) -> None:
        try:
            for _ in range(_PIECES):
                heard = agent.hear()
                for answer in heard.reports:
                    self._take(agent, answer, time.monotonic())
                if heard.ended:
                    self._loop.remove_reader(agent.reports)
                if heard.emptied:
                    return
        except (FrameError, IndexError) as error:
            self._end(f"it is not understood: {error}")

    def _take(self, agent: Agent, answer: Answer, now: float) -> None:
        self._answered_at = now
        newest = answer.token == self._token
        if newest:
            self._asked_at = None
        if self._follows and not is_complete(answer.sources) and now - agent.born < self._deadline:
            return  # what another agent told is worth more than what this one cannot tell yet
        self._follows = False
        if newest:
            self._need.told(answer.sources, self._last_ask)
        same = self._answer is not None and msgspec.structs.replace(self._answer, token=answer.token) == answer
        self._answer = answer
        if not same:
            self._need.changed(now)
            self._told(unpacked(answer))

    def _told(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._log.tell(attribution.sources, time.monotonic())
        self._publish(attribution)

    def _down(self, reason: str, now: float) -> None:
        """Publish that nobody tells, and start another agent later."""
        self._spawn_at = now + self._retry.next()
        self._need.begun()
        self._asked_at = self._answer = None
        known = self._attribution or Attribution(sources=(SourceStatus(source=PROC, up=False),))
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
            now = time.monotonic()
            self._kill(agent, now)
            self._down(reason, now)

    def _kill(self, agent: Agent, now: float) -> None:
        agent.killed_at = now
        agent.kill()
        self._loop.remove_reader(agent.reports)

    def _reap(self, agent: Agent, now: float) -> None:
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
            self._left.add(agent)
            if len(self._left) >= self._most_abandoned:
                self._down(f"{len(self._left)} that were started cannot be killed", now)
