"""The daemon: readings from the workers, pages to the clients, one event loop for both, and an end within seconds."""

import asyncio
import logging
import os
import platform
import resource
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from exporter import __version__
from exporter.announce import Announcer
from exporter.config import Config
from exporter.exposition import Format, Renderer
from exporter.fleet import Fleet
from exporter.journal import Journal, opened, places
from exporter.journal.pages import show
from exporter.metrics import Block
from exporter.pci import count_gpus
from exporter.providers import PROVIDERS
from exporter.supervision.attributor import Attributor
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.supervisor import Supervisor
from exporter.web.limits import Limits, fitted, needed
from exporter.web.listen import ListenError
from exporter.web.routes import PROBES, build
from exporter.web.server import Server
from exporter.web.server import serve as listen

logger = logging.getLogger(__name__)

FRESH_SECONDS = 0.05
"""How long a scrape waits for the drivers."""
LOOK_SECONDS = 1.0
"""How often the log is told what has changed."""
LOOKS_PER_COUNT = 60
"""After how many of those PCI is asked again for GPUs: cards come and go on hosts that can plug them."""
CLOSE_SECONDS = 4.0
"""After this a worker that does not end is left to die with the process."""


def providers(config: Config) -> tuple[str, ...]:
    """Return the names of the providers to open, in order of preference."""
    if config.providers:
        return tuple(name for name in PROVIDERS if name in config.providers)
    if config.simulate is not None:
        return ("simulated",)
    return tuple(name for name, entry in PROVIDERS.items() if not entry.by_name_only)


def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 1 when it could not serve."""
    return asyncio.run(_serve(config))


async def _serve(config: Config) -> int:
    names = providers(config)
    _say_what_starts(config, names)
    wanted = [(name, name in config.providers or name == "simulated") for name in names]
    fleet = Fleet(wanted, config.sampling, config.processes, config.attribution)
    for name, count in _expected(names).items():
        fleet.expected(name, count)
    host = config.attribution.host
    requests = [WorkerRequest(provider=name, host=host, scenario=_scenario(config, name)) for name in names]
    supervisor = Supervisor(fleet, requests, config.sampling)
    attributor = Attributor(
        lambda: fleet.world(time.monotonic()),
        lambda attribution: fleet.attributed(attribution, time.monotonic()),
        config.attribution,
        config.sampling.processes_seconds,
    )
    renderer = Renderer(config.metrics.disable, created=config.metrics.created, process_labels=config.processes.labels)

    journal = opened(fleet, places(config.journal, os.environ))

    async def page(form: Format, blocks: frozenset[Block] | None, gzip: bool) -> bytes:
        if blocks is None or Block.ENERGY in blocks:
            until = time.monotonic() + FRESH_SECONDS
            await supervisor.fresh(FRESH_SECONDS)
            world = fleet.world(time.monotonic())
            energy = await journal.shown(world, until - time.monotonic())
            content = show(renderer, world, energy, form, blocks, gzip=gzip)
        else:
            content = renderer.page(fleet.world(time.monotonic()), form, blocks, gzip=gzip)
        fleet.dropped(renderer.dropped)
        return content

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, logger.warning, "SIGHUP: the configuration is read at the start only; restart to change it"
    )
    handler = build(page, lambda: fleet.world(time.monotonic()), time.time, config.web.telemetry_path)
    try:
        server = await listen(
            config.web.listen_addresses,
            handler,
            limits=_limits(config),
            uncounted=PROBES,
        )
    except ListenError as e:
        logger.error("%s", e)  # noqa: TRY400 -- the sentence is all that there is to say
        await journal.close()
        return 1
    for address in server.addresses:
        logger.info("serving", extra={"url": f"http://{address}{config.web.telemetry_path}"})
    return await _until(stop, supervisor, attributor, server, fleet, journal, names)


async def _until(
    stop: asyncio.Event,
    supervisor: Supervisor,
    attributor: Attributor,
    server: Server,
    fleet: Fleet,
    journal: Journal,
    names: tuple[str, ...],
) -> int:
    """Run until told to stop, or until the supervisor breaks, without which nothing works."""
    stopped = asyncio.create_task(stop.wait())
    supervising = asyncio.create_task(supervisor.run())
    attributing = asyncio.create_task(attributor.run())
    looking = asyncio.create_task(_keep_looking(fleet, names))
    keeping = asyncio.create_task(journal.keep())
    await asyncio.wait([stopped, supervising], return_when=asyncio.FIRST_COMPLETED)
    failed = supervising.done()
    if failed:
        logger.critical("the workers are no longer supervised", exc_info=supervising.exception())
    logger.info("stopping")
    looking.cancel()
    keeping.cancel()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            ends = (server.close(), supervisor.close(), attributor.close())
            for outcome in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    logger.error("the end was not in order", exc_info=outcome)
    except TimeoutError:
        logger.warning("a worker does not end; it is left behind")
    await journal.close()
    for task in (stopped, supervising):
        task.cancel()
    await asyncio.wait([stopped, supervising, attributing, looking, keeping], timeout=0.6)
    logger.info("stopped")
    return 1 if failed else 0


async def _keep_looking(fleet: Fleet, names: tuple[str, ...]) -> None:
    """Tell the log what comes and goes, and the fleet what PCI shows."""
    announcer = Announcer()
    while True:
        try:
            for _ in range(LOOKS_PER_COUNT):
                for level, message, fields in announcer.lines(fleet.world(time.monotonic())):
                    logger.log(level, message, extra=fields)
                await asyncio.sleep(LOOK_SECONDS)
            for name, count in _expected(names).items():
                fleet.expected(name, count)
        except Exception:  # metrics are worth more than what the log says about them
            logger.exception("the log cannot be told what has changed")
            await asyncio.sleep(LOOK_SECONDS * LOOKS_PER_COUNT)


def _expected(names: tuple[str, ...]) -> Mapping[str, int | None]:
    vendors = {name: PROVIDERS[name].pci_vendor for name in names}
    return {name: None if vendor is None else count_gpus(vendor) for name, vendor in vendors.items()}


def _limits(config: Config) -> Limits:
    """Return the limits on clients, after raising that on descriptors as far as they need it and it may be raised."""
    limits = Limits(max_requests=config.web.max_requests)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(limits) if hard == resource.RLIM_INFINITY else min(needed(limits), hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return limits if soft == resource.RLIM_INFINITY else fitted(limits, soft)


def _scenario(config: Config, name: str) -> str | None:
    """Return the absolute path of the scenario that a provider lives: workers run in the root directory."""
    return None if name != "simulated" or config.simulate is None else str(Path(config.simulate).absolute())


def _say_what_starts(config: Config, names: tuple[str, ...]) -> None:
    logger.info(
        "gpu-exporter starts",
        extra={"version": __version__, "python": platform.python_version(), "providers": ",".join(names)},
    )
    if config.simulate is not None and "simulated" not in names:
        logger.warning("the scenario has no effect: providers are named, and simulated is not one of them")
    if os.geteuid() == 0:
        logger.warning(
            "running as root, which reading metrics does not need; a user in the groups video and render will do"
        )
