"""The daemon: readings from the workers, pages to the clients, one event loop for both, and an end within seconds."""

import asyncio
import gc
import logging
import os
import platform
import resource
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from exporter import __version__, early, logs
from exporter.config import Config, WebConfig
from exporter.daemon import signals
from exporter.daemon.attributing import attributor_of
from exporter.daemon.life import keep_pinging, lasting_failure, turns
from exporter.daemon.look import Lookout, count
from exporter.daemon.page import Pages
from exporter.daemon.privilege import needs_root
from exporter.daemon.reload import Reloader, keep_reloading
from exporter.fleet import Fleet
from exporter.journal import Journal, opened, places
from exporter.supervision import orphans
from exporter.supervision.attributor import Attributor
from exporter.supervision.need import TERMS, Terms
from exporter.supervision.requests import providers, wanted, worker_requests
from exporter.supervision.supervisor import Supervisor
from exporter.systemd import Systemd
from exporter.web.limits import Limits, fitted, needed
from exporter.web.listen import ListenError, passed_sockets
from exporter.web.routes import PROBES, build
from exporter.web.server import Server
from exporter.web.server import serve as listen

if TYPE_CHECKING:
    from exporter.web.guard import Guard  # it brings YAML and hashing, which only those with such a file are to pay

logger = logging.getLogger(__name__)

_ENDS = (signal.SIGTERM, signal.SIGINT)
CLOSE_SECONDS = 4.0
"""After this a worker that does not end is left to die with the process."""
SETTLED_SECONDS = 5.0
"""After this all is made that lives as long as the daemon."""
LASTING_FAILURE = 3
"""The exit code after a failure that the exporter was told not to outlast."""


def serve(config: Config, read: Callable[[], Config], terms: Terms = TERMS) -> int:
    """Serve until SIGTERM or SIGINT. `read` reads the configuration again, or raises ConfigError.

    `terms`: when there is to be an agent of attribution. Returns the exit code: 0, 1 when it could not serve, or
    LASTING_FAILURE. Raises ConfigError.
    """
    guard = None if config.web.config_file is None else _guard(config.web.config_file)
    signals.hold_interrupts()
    with asyncio.Runner() as runner:
        code = runner.run(_serve(config, read, guard, terms))
        _ignore_signals()
    return code


async def _serve(config: Config, read: Callable[[], Config], guard: "Guard | None", terms: Terms) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _ENDS:
        signals.on(loop, number, stop.set)
    systemd = Systemd(os.environ, os.getpid())
    names = providers(config)
    _say_what_starts(config, names)
    fleet = Fleet(wanted(config), config.sampling, config.processes, config.attribution)
    count(fleet, names)
    supervisor = Supervisor(fleet, worker_requests(config), config.sampling, config.workers)
    attributor = attributor_of(fleet, config, terms)
    journal = opened(fleet, places(config.journal, os.environ))
    pages = Pages(fleet, supervisor, journal, config)
    handler = build(
        pages.page,
        lambda: fleet.world(time.monotonic()),
        time.time,
        config.web.telemetry_path,
        alive=lambda: turns(time.monotonic(), supervisor.turned_at),
        explain=lambda gpu: fleet.explain(gpu, time.monotonic()),
        host=socket.gethostname(),
    )
    try:
        server = await listen(
            config.web.listen_addresses,
            handler,
            limits=_limits(config.web),
            uncounted=PROBES,
            guard=guard,
            sockets=_passed() if config.web.systemd_socket else None,
        )
    except ListenError as e:
        logger.error("%s", e)  # noqa: TRY400 -- the sentence is all that there is to say
        await journal.close()
        return 1
    scheme = "https" if guard is not None and guard.secure else "http"
    for address in server.addresses:
        logger.info("serving", extra={"url": f"{scheme}://{address}{config.web.telemetry_path}"})

    def apply(changed: Config) -> None:
        logs.configure(changed.log.level, changed.log.format)
        pages.choose(changed)
        supervisor.limit(changed.workers)
        server.limit(_limits(changed.web))

    reloader = Reloader(config, read, guard, apply, fleet, systemd)
    reload = asyncio.Event()
    acts = {signal.SIGHUP: reload.set, signal.SIGUSR1: supervisor.release, signal.SIGUSR2: supervisor.take_up}
    for number, act in acts.items():
        signals.on(loop, number, act)
    for came in early.arrived():
        acts[signal.Signals(came)]()
    if os.getpid() == 1:
        signals.on(loop, signal.SIGCHLD, orphans.reap)
    systemd.ready()
    lookout = Lookout(fleet, names, lambda: server.counts, lambda: reloader.well, systemd)
    aside = (
        pages.keep_ahead(),
        lookout.keep_looking(),
        journal.keep(),
        attributor.run(),
        keep_pinging(systemd, lambda: supervisor.turned_at),
        keep_reloading(reloader, reload),
    )
    tasks = [asyncio.create_task(each) for each in aside]
    loop.call_later(SETTLED_SECONDS, _settle)
    return await _until(stop, supervisor, attributor, fleet, server, journal, systemd, tasks)


def _guard(path: str) -> "Guard":
    from exporter.web.guard import Guard  # noqa: PLC0415 -- as above

    return Guard.load(path)


def _settle() -> None:
    """Leave what is there out of all collections of garbage to come: each full one held up a page for 10 ms."""
    gc.collect()
    gc.freeze()


def _ignore_signals() -> None:
    """Let nothing change how it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS + early.NUMBERS)
    for number in _ENDS + early.NUMBERS:
        signal.signal(number, signal.SIG_IGN)


async def _until(
    stop: asyncio.Event,
    supervisor: Supervisor,
    attributor: Attributor,
    fleet: Fleet,
    server: Server,
    journal: Journal,
    systemd: Systemd,
    aside: list[asyncio.Task[None]],
) -> int:
    """Run until told to stop, a failure lasts too long, or the supervisor breaks, without which nothing works."""
    stopped = asyncio.create_task(stop.wait())
    supervising = asyncio.create_task(supervisor.run())
    failing = asyncio.create_task(lasting_failure(supervisor, fleet))
    await asyncio.wait([stopped, supervising, failing], return_when=asyncio.FIRST_COMPLETED)
    broken = supervising.done()
    failure = failing.result() if failing.done() and not stopped.done() else None
    if broken:
        logger.critical("the workers are no longer supervised", exc_info=supervising.exception())
    systemd.stopping()
    logger.info("stopping")
    for task in aside:
        task.cancel()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            ends = (server.close(), supervisor.close(), attributor.close())
            for outcome in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    logger.error("the end was not in order", exc_info=outcome)
    except TimeoutError:
        logger.warning("a worker does not end; it is left behind")
    await journal.close()
    for waiting in (stopped, supervising, failing):
        waiting.cancel()
    await asyncio.wait([stopped, supervising, failing, *aside], timeout=0.5)
    if failure is not None and not broken:
        logger.critical("stopped: a restart may cure what lasts", extra={"reason": failure, "code": LASTING_FAILURE})
        return LASTING_FAILURE
    logger.info("stopped")
    return 1 if broken else 0


def _passed() -> list[socket.socket]:
    """Return the sockets that systemd passed. Raises ListenError."""
    sockets = passed_sockets(os.environ, os.getpid())
    if not sockets:
        raise ListenError("cannot listen: systemd passed no socket, as web.systemd_socket wants it to")
    return sockets


def _limits(web: WebConfig) -> Limits:
    """Return the limits on clients, after raising that on descriptors as far as they need it and it may be raised."""
    limits = Limits(max_requests=web.max_requests)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(limits) if hard == resource.RLIM_INFINITY else min(needed(limits), hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return limits if soft == resource.RLIM_INFINITY else fitted(limits, soft)


def _say_what_starts(config: Config, names: tuple[str, ...]) -> None:
    logger.info(
        "gpu-exporter starts",
        extra={"version": __version__, "python": platform.python_version(), "providers": ",".join(names)},
    )
    if config.simulate is not None and "simulated" not in names:
        logger.warning("the scenario has no effect: providers are named, and simulated is not one of them")
    if os.geteuid() == 0 and names != ("simulated",) and not needs_root(config.attribution):
        logger.warning(
            "running as root, which is needed only for the memory that processes of other users have of AMD GPUs "
            "without computing; else a user in the groups video and render will do"
        )
