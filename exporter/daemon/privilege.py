"""Does anything that the configuration asks for need root here? What does not is said to who runs as root."""

from pathlib import Path

from exporter.config import AttributionConfig


def needs_root(config: AttributionConfig, mounts: str = "/proc/self/mounts") -> bool:
    """Tell whether a user in the groups of the GPUs' device nodes would be told less of whose the processes are.

    `mounts`: the kernel's list of what is mounted. Memory that processes of other users have of AMD's GPUs without
    computing does not count: it takes root on every host.
    """
    if not config.enabled:
        return False
    socket = config.kubelet_socket
    return config.slurm_environment or (socket is not None and _is_there(Path(socket))) or _hides(config.proc, mounts)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _hides(proc: str, mounts: str) -> bool:
    """Tell whether proc hides processes of other users; no if it cannot be told."""
    try:
        lines = Path(mounts).read_text(errors="replace").splitlines()
    except OSError:
        return False
    found = ""
    for line in lines:
        match line.split():
            case [_, place, _, options, *_] if place == (proc.rstrip("/") or "/"):
                found = options  # the last mount there is the one that is seen
            case _:
                pass
    return any(option.startswith("hidepid=") and option[8:] not in ("0", "off") for option in found.split(","))
