"""Which workers a configuration asks for."""

from pathlib import Path

from exporter.config import Config
from exporter.providers import PROVIDERS
from exporter.supervision.frames import WorkerRequest


def providers(config: Config) -> tuple[str, ...]:
    """Return the names of the providers to open, in order of preference."""
    if config.providers:
        return tuple(name for name in PROVIDERS if name in config.providers)
    if config.simulate is not None:
        return ("simulated",)
    return tuple(name for name, entry in PROVIDERS.items() if not entry.by_name_only)


def wanted(config: Config) -> list[tuple[str, bool]]:
    """Return those names, each with whether somebody asked for it."""
    return [(name, name in config.providers or name == "simulated") for name in providers(config)]


def worker_requests(config: Config) -> tuple[WorkerRequest, ...]:
    """Return one request for each provider to open, in order of preference."""
    host = config.attribution.host
    return tuple(
        WorkerRequest(provider=name, host=host, scenario=_scenario(config, name)) for name in providers(config)
    )


def _scenario(config: Config, name: str) -> str | None:
    """Return the absolute path of the scenario that a provider lives: workers run in the root directory."""
    return None if name != "simulated" or config.simulate is None else str(Path(config.simulate).absolute())
