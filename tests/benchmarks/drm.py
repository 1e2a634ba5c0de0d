"""What it costs to read cards by their files: `python -m tests.benchmarks.drm [DIRECTORY]`, by default in /dev/shm.

Processor time for each of 8 cards of amdgpu, by group, without what a driver needs to answer: the files are those of a
tree in memory.
"""

import functools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from exporter.model import Device, Group, Groups
from exporter.providers.drm import open_drm
from exporter.providers.protocol import OpenContext, Provider
from tests.drm import card
from tests.unit.drm.bench import radeon

CARDS = 8
ROUNDS = 200


def microseconds(action: Callable[[], object], rounds: int) -> float:
    action()
    begun = time.process_time()
    for _ in range(rounds):
        action()
    return (time.process_time() - begun) / rounds * 1e6


def read(provider: Provider, devices: Sequence[Device], groups: Groups) -> None:
    for device in devices:
        provider.read(device, groups)


def main(directory: str) -> None:
    root = Path(tempfile.mkdtemp(dir=directory))
    try:
        for number in range(CARDS):
            files = radeon(unique_id=f"{number + 1:016x}")
            card(root, number, files, address=f"0000:{number + 3:02x}:00.0", minor=128 + number)
        provider = open_drm(OpenContext(between_calls=lambda: None, root=root)).provider
        devices = provider.devices()
        for group in (Group.ENERGY, Group.LOAD, Group.STATE):
            spent = microseconds(functools.partial(read, provider, devices, frozenset({group})), ROUNDS)
            print(f"{group:10} {spent / CARDS:6.0f} us a card")
        print(f"enumerate  {microseconds(provider.devices, 20) / CARDS:6.0f} us a card")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "/dev/shm")  # noqa: S108 -- in memory
