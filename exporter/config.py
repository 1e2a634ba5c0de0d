"""What can be configured, with its defaults, and the strict reading of it from YAML."""

import msgspec


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    listen_addresses: tuple[str, ...] = ("127.0.0.1:10042",)
    telemetry_path: str = "/metrics"
    max_requests: int = 40
    """Requests served at the same time; more get 503."""


class SamplingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds between reads of each group."""

    energy_seconds: float | None = None
    """None: 1 s where the power reading is an average over about a second, else 0.1 s."""
    load_seconds: float = 1.0
    state_seconds: float = 5.0
    processes_seconds: float = 10.0
    deadline_seconds: float = 2.0
    """How long one read of one device may take before the worker is taken for hung."""
    open_deadline_seconds: float = 20.0
    """How long the vendor's library may take to start and enumerate."""


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    disable: tuple[str, ...] = ()
    """Name patterns such as gpu_pcie_*; one that matches no metric is an error."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: str = "info"
    format: str = "logfmt"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    providers: tuple[str, ...] = ()
    """Asked for by name, and no others are opened; empty: every one that opens."""
    simulate: str | None = None
    """Scenario file of the simulated provider."""
    web: WebConfig = WebConfig()
    sampling: SamplingConfig = SamplingConfig()
    metrics: MetricsConfig = MetricsConfig()
    log: LogConfig = LogConfig()
