"""What can be configured, with its defaults, and the strict reading of it from YAML."""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from exporter.addresses import MAX_PORT, parse_address
from exporter.metrics import METRIC_NAMES
from exporter.providers import PROVIDERS
from exporter.settings import AttributionConfig, SamplingConfig, is_averaged, seconds
from exporter.validation import ValidationError, convert, printable, shown, suggestion

__all__ = ["AttributionConfig", "SamplingConfig", "is_averaged"]
"""Of `settings`, for those who need the rest of the configuration too."""

_S = TypeVar("_S", bound=msgspec.Struct)

HEALTHY = "/-/healthy"
READY = "/-/ready"
DEVICES = "/device"
"""Below it each GPU has a page of its own."""
RESERVED_PATHS = ("/", HEALTHY, READY, DEVICES)

Kind = Literal["configuration", "web configuration", "scenario"]
_OPTIONS_FOR = {"web configuration": "--web.config.file", "scenario": "--simulate"}
_WEB_CONFIG_KEYS = frozenset({"tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"})


class ConfigError(Exception):
    """`messages`: one line for each problem, with its file or option and key path."""

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = tuple(map(printable, messages))
        super().__init__("\n".join(self.messages))


def _provider(name: str) -> str | None:
    if name in PROVIDERS:
        return None
    known = ", ".join(PROVIDERS)
    return f"no provider has the name {shown(name)}; there are {known}{suggestion(name, PROVIDERS)}"


def _pattern(pattern: str) -> str | None:
    if any(fnmatch.fnmatchcase(name, pattern) for name in METRIC_NAMES):
        return None
    return f"no metric matches {shown(pattern)}{suggestion(pattern, METRIC_NAMES)}"


def _address(address: str) -> str | None:
    if parse_address(address) is not None:
        return None
    if address.count(":") > 1 and "[" not in address:
        return f"an IPv6 address needs brackets, such as [::1]:10042, got {shown(address)}"
    return f"expected HOST:PORT, [IPV6]:PORT or :PORT with a port up to {MAX_PORT}, got {shown(address)}"


def _path(path: str) -> str | None:
    if path in RESERVED_PATHS or path.startswith(f"{DEVICES}/"):
        return f"{path} is served already"
    # Clients take /. and /.. away before they ask.
    if not re.fullmatch(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)+", path):
        return f"expected a path such as /metrics, got {shown(path)}"
    return None


def _file(path: str) -> str | None:
    return None if path and "\0" not in path else "expected the path of a file"


def _directory(path: str) -> str | None:
    return None if path and "\0" not in path else "expected the path of a directory"


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen_addresses: Annotated[
        tuple[Annotated[str, Meta(extra={"check": _address})], ...], Meta(min_length=1, max_length=16)
    ] = ("127.0.0.1:10042",)
    telemetry_path: Annotated[str, Meta(extra={"check": _path})] = "/metrics"
    max_requests: Annotated[int, Meta(ge=0, le=1000)] = 40
    """Pages made at the same time; more requests get 503. 0: bounded by the number of connections only."""
    config_file: Annotated[str, Meta(extra={"check": _file})] | None = None
    """TLS, login, headers and rate limit, in the format of Prometheus' exporter toolkit.

    In a configuration file it is relative to that file.
    """
    systemd_socket: bool = False
    """Serve on the sockets that systemd passes, instead of on `listen_addresses`."""


class WorkersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the child processes that hold the vendors' libraries are replaced, and when to give up."""

    max_age_seconds: Annotated[float, seconds(60, 365 * 86400)] | None = 86400.0
    max_memory_bytes: Annotated[int, Meta(ge=2**24, le=2**44)] | None = 2**30
    """Of resident memory that no file backs: what a library leaks."""
    max_descriptors: Annotated[int, Meta(ge=16, le=2**20)] | None = 512
    release_seconds: Annotated[float, seconds(1, 86400)] = 1800.0
    """After so long released devices are taken up again without being asked."""
    exit_after_seconds: Annotated[float, seconds(10, 86400)] | None = None
    """End with exit code 3 when a provider that has GPUs was down for so long; None: go on trying for ever."""


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    disable: tuple[Annotated[str, Meta(extra={"check": _pattern})], ...] = ()
    """Name patterns such as gpu_pcie_*; one that matches no metric is an error."""
    created: bool = False
    """Whether OpenMetrics says when energy counters began: on a Prometheus without its feature flag, series more."""
    links: Literal["total", "each"] = "total"
    """Links between GPUs: all of a kind together, or one by one."""


class ProcessesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page shows of processes."""

    top: Annotated[int, Meta(ge=0, le=1024)] = 16
    """Series per device, by memory; the rest are summed in one."""
    labels: tuple[Literal["pid", "name", "user", "workload"], ...] = ("pid", "name")
    """Processes that agree in all of these are summed."""
    minimum_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 0
    """Processes that hold less are summed with the rest."""


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where totals are kept over a restart; each defaults to what systemd gives, else to the other one.

    In a configuration file they are relative to that file.
    """

    directory: Annotated[str, Meta(extra={"check": _directory})] | None = None
    state_directory: Annotated[str, Meta(extra={"check": _directory})] | None = None


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warn", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    providers: tuple[Annotated[str, Meta(extra={"check": _provider})], ...] = ()
    """Asked for by name, and no others are opened; empty: every one that opens."""
    simulate: Annotated[str, Meta(extra={"check": _file})] | None = None
    """Scenario file of the simulated provider; in a configuration file it is relative to that file."""
    web: WebConfig = WebConfig()
    sampling: SamplingConfig = SamplingConfig()
    workers: WorkersConfig = WorkersConfig()
    metrics: MetricsConfig = MetricsConfig()
    processes: ProcessesConfig = ProcessesConfig()
    attribution: AttributionConfig = AttributionConfig()
    journal: JournalConfig = JournalConfig()
    log: LogConfig = LogConfig()


def load_config(path: str | Path) -> Config:
    """Read a configuration file. Raises ConfigError with every problem in it, each with its key path."""
    from exporter.strict_yaml import read  # noqa: PLC0415 -- PyYAML where a file is read only

    try:
        return parse_config(read(path), path)
    except OSError as e:
        raise ConfigError([f"{path}: {e.strerror}"]) from None


def kind_of_file(tree: object) -> Kind:
    """Tell by its keys what kind of file it is; what is none of the others is held to be a configuration."""
    keys = set(tree) if isinstance(tree, dict) else set()
    if not keys or not keys.isdisjoint(Config.__struct_fields__):
        return "configuration"
    if not keys.isdisjoint(_WEB_CONFIG_KEYS):
        return "web configuration"
    from exporter.providers.simulated.schema import Scenario  # noqa: PLC0415 -- for files that may be one

    return "configuration" if keys.isdisjoint(Scenario.__struct_fields__) else "scenario"


def parse_config(data: bytes, path: str | Path) -> Config:
    """Return what the configuration file `path` holds, which is `data`. Raises ConfigError."""
    from exporter.strict_yaml import YamlError, load  # noqa: PLC0415 -- as above

    try:
        document = load(data)
    except YamlError as e:
        raise ConfigError([f"{path}: {e}"]) from None
    kind = kind_of_file(document.value)
    if kind != "configuration":
        raise ConfigError([f"{path}: this is a {kind}, no configuration; give it to {_OPTIONS_FOR[kind]}"])
    try:
        config = convert(document.value, Config, document.problems)
    except ValidationError as e:
        raise ConfigError(f"{path}: {message}" for message in e.messages) from None
    beside = Path(path).parent
    journal = {
        name: str(beside / directory)
        for name, directory in msgspec.structs.asdict(config.journal).items()
        if directory is not None
    }
    web_file = config.web.config_file
    return msgspec.structs.replace(
        config,
        simulate=None if config.simulate is None else str(beside / config.simulate),
        web=msgspec.structs.replace(config.web, config_file=None if web_file is None else str(beside / web_file)),
        journal=msgspec.structs.replace(config.journal, **journal),
    )


def override(config: Config, options: Mapping[str, Any], names: Mapping[str, str]) -> Config:
    """Lay `options`, a tree of the keys of a file, over `config`.

    `names` gives the name to report a problem under by key path. Raises ConfigError with every problem.
    """
    try:
        given = convert(dict(options), Config)
    except ValidationError as e:
        raise ConfigError(_renamed(message, names) for message in e.messages) from None
    return _laid_over(config, given, options)


def _laid_over(base: _S, given: _S, options: Mapping[str, Any]) -> _S:
    changes = {
        key: _laid_over(getattr(base, key), getattr(given, key), value)
        if isinstance(value, dict)
        else getattr(given, key)
        for key, value in options.items()
    }
    return msgspec.structs.replace(base, **changes)


def _renamed(message: str, names: Mapping[str, str]) -> str:
    path, _, rest = message.partition(": ")
    return f"{names.get(path.partition('[')[0], path)}: {rest}"
