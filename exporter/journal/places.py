"""Where the journal lies, and which boot this is."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.config import JournalConfig


class Places(NamedTuple):
    """Two directories, which may be the same one."""

    live: Path
    """Of the journal while the daemon runs; on tmpfs by preference, since it is replaced at every scrape."""
    stopped: Path
    """Of the copy that a clean stop leaves, which survives a reboot."""


def places(config: JournalConfig, environment: Mapping[str, str]) -> Places | None:
    """Return the directories of the configuration, else those that systemd gives; None: there are none."""
    live = config.directory or _given(environment, "RUNTIME_DIRECTORY")
    stopped = config.state_directory or _given(environment, "STATE_DIRECTORY")
    either = live or stopped
    return Places(Path(live or either), Path(stopped or either)) if either else None


def _given(environment: Mapping[str, str], name: str) -> str:
    # A unit may have several, in a list with colons; the first is the one that is named after it.
    return environment.get(name, "").partition(":")[0]


def boot_id(root: Path = Path("/")) -> str:
    """Return what differs at each boot of the machine. Raises OSError where the kernel does not tell."""
    return (root / "proc/sys/kernel/random/boot_id").read_text("ascii", errors="replace").strip()
