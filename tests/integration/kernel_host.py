"""A daemon whose /sys is a tree of the test: what the kernel shows of the cards that the vendors' libraries show."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from exporter.providers.simulated.machine import Machine
from tests.drm import write_cards

CONFIG = """
sampling: {energy_seconds: 0.25, load_seconds: 0.5, state_seconds: 0.5, processes_seconds: 2, deadline_seconds: 1,
           open_deadline_seconds: 6}
attribution: {enabled: false}
"""


class KernelHost:
    """What lies in `folder`: the tree, the plan of the stand-ins, and how a daemon is started over both."""

    def __init__(self, folder: Path, machine: Machine, watts: float) -> None:
        """`watts`: what sysfs says that each AMD card draws, so that it can be told from what its library says."""
        self.plan = folder / "plan"
        self.root = folder / "host"
        self.log = folder / "log"
        write_cards(self.root, machine, 1_000.0)
        for path in self.root.rglob("power1_*"):
            if path.name in ("power1_average", "power1_input"):
                path.write_text(f"{watts * 1e6:.0f}\n")
        self._config = folder / "config.yaml"
        self._config.write_text(CONFIG)
        self._launcher = folder / "python"
        self._launcher.write_text(
            "#!/bin/sh\n"
            f"exec unshare --mount {'' if os.geteuid() == 0 else '--map-root-user '}sh -c '\n"
            f'mount --bind "{self.root}/sys" /sys && exec "{sys.executable}" "$@"\' sh "$@"\n'
        )
        self._launcher.chmod(0o755)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--config.file", str(self._config))

    def options(self, environment: Mapping[str, str]) -> Mapping[str, object]:
        """Return the options of `daemon.running`; `environment`: how the libraries are found."""
        return {
            "env": {**environment, "GPU_EXPORTER_PLAN": str(self.plan)},
            "log": self.log,
            "python": str(self._launcher),
        }
