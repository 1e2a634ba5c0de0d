"""What of the configuration the child processes are sent: its records alone, without what reads and checks a file.

They are small on purpose, and checking brings host names, addresses and the tables of all metrics.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

_AVERAGED_WINDOW_SECONDS = 0.5
_AVERAGED_PERIOD_SECONDS = 1.0
_INSTANT_PERIOD_SECONDS = 0.093
"""No round number, as the periods of sensors and loads are: reads at 0.1 s keep step with a load of 0.1 s for seconds,
or need so much jitter that they miss every third update of the sensor."""


def _absolute(path: str) -> str | None:
    return None if path.startswith("/") and "\0" not in path else "expected an absolute path"


AbsolutePath = Annotated[str, Meta(extra={"check": _absolute})]


def _proc(path: str) -> str | None:
    named = path.rstrip("/").rpartition("/")[2] == "proc"
    return _absolute(path) or (None if named else "expected a directory named proc, such as /host/proc")


def seconds(low: float, high: float) -> Meta:
    """Return what a number of seconds is checked by."""
    return Meta(ge=low, le=high, extra={"noun": "a number of seconds"})


class SamplingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds between reads of each group."""

    energy_seconds: Annotated[float, seconds(0.05, 60)] | None = None
    """None: 1 s where the power reading is an average over about a second, else 93 ms."""
    load_seconds: Annotated[float, seconds(0.1, 600)] = 1.0
    state_seconds: Annotated[float, seconds(0.1, 3600)] = 5.0
    processes_seconds: Annotated[float, seconds(0.1, 3600)] = 10.0
    profiling_seconds: Annotated[float, seconds(1, 3600)] | None = None
    """None: profiling counters are left alone. They cost power, and some other profilers cannot work beside them."""
    pcie_bytes: bool = False
    """Read how many bytes went over PCIe."""
    deadline_seconds: Annotated[float, seconds(0.1, 60)] = 2.0
    """How long one read of one device may take before the worker is taken for hung."""
    open_deadline_seconds: Annotated[float, seconds(0.1, 600)] = 20.0
    """How long the vendor's library may take to start and enumerate."""

    def energy_period(self, *, averaged: bool) -> float:
        """Return the nominal seconds between reads of the energy group; `averaged`: as of `is_averaged`."""
        if self.energy_seconds is not None:
            return self.energy_seconds
        return _AVERAGED_PERIOD_SECONDS if averaged else _INSTANT_PERIOD_SECONDS


class AttributionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where it is looked up whose a process is, and who was given a GPU. Paths are of the host."""

    enabled: bool = True
    proc: Annotated[str, Meta(extra={"check": _proc})] = "/proc"
    """Of the host: where it is mounted in a container that does not share the host's pid namespace."""
    kubelet_socket: AbsolutePath | None = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubelet_resources: tuple[str, ...] = (
        "nvidia.com/*",
        "amd.com/*",
        "gpu.nvidia.com/*",
        "gpu.amd.com/*",
        "gpu.intel.com/*",
    )
    """Name patterns of resources whose ids may be GPUs; devices of DRA are matched as DRIVER/DEVICE."""
    pod_logs: AbsolutePath | None = "/var/log/pods"
    """Names of pods by their uid."""
    api_server: bool = False
    """Whether names of pods, and devices of DRA, may be asked of the API server, with the pod's service account."""
    job_files: AbsolutePath | None = None
    """Files that a prolog writes, one per GPU: lines of job ids as for dcgm-exporter, or AMD's JSON."""
    slurm_environment: bool = False
    """Read the GPUs of a Slurm job from the environment of its processes.

    That needs CAP_SYS_PTRACE and, of users other than root, CAP_DAC_READ_SEARCH.
    """
    linger_seconds: Annotated[float, seconds(0, 86400)] = 180.0
    """How long the counters of a workload are shown after it is gone."""

    @property
    def host(self) -> str | None:
        """Below which the host's proc is; None: where it always is."""
        above = self.proc.rstrip("/").removesuffix("/proc")
        return above or None


def is_averaged(kind: str | None, window: float | None) -> bool:
    """Tell whether a power reading of this kind and window is an average over about a second, which 1 Hz tiles."""
    return kind == "average" and window is not None and window >= _AVERAGED_WINDOW_SECONDS
