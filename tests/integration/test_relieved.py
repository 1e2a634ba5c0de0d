"""Two workers see the same GPUs: the second reads their energy seldom while the first does, and at full pace when not.

A double load on the GPU's firmware would double what a reading costs, for a reading that nobody looks at.
"""

import json
import time
from pathlib import Path
from random import Random

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.model import GpuState, Snapshot
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.supervisor import Supervisor
from tests.integration.supervised import Host, in_loop, running

SAMPLING = SamplingConfig(
    energy_seconds=0.1, load_seconds=0.1, state_seconds=1.0, deadline_seconds=1.0, open_deadline_seconds=20.0
)
GPUS = ["a", "b"]


class Two(Host):
    """The first provider has the name of the GPUs' vendor; each has its own orders."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.orders = {"devices": GPUS}
        self.fleet = Fleet([("test", True), ("second", True)], SAMPLING)
        requests = []
        for name in ("test", "second"):
            self.tell(name)
            requests.append(
                WorkerRequest(
                    provider=name,
                    scenario=str(directory / f"{name}.json"),
                    opener="tests.integration.unruly:open_unruly",
                )
            )
        self.supervisor = Supervisor(self.fleet, requests, SAMPLING, random=Random(1))

    def tell(self, name: str, **orders: object) -> None:
        control = self.directory / f"{name}.json"
        draft = control.with_suffix(".draft")
        draft.write_text(json.dumps({**self.orders, **orders}))
        draft.rename(control)

    def reads(self, name: str) -> int:
        """Return how often the energy of one GPU was read by a worker since it was started."""
        try:
            return int(json.loads((self.directory / f"{name}.reads").read_text())["a"])
        except (OSError, ValueError, KeyError):
            return 0

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return self.fleet.world(time.monotonic()).snapshots

    def served_by(self, name: str) -> bool:
        devices = [device for snapshot in self.snapshots for device in snapshot.devices]
        assert len(devices) in (0, len(GPUS))
        return len(devices) == len(GPUS) and all(
            device.state is GpuState.OK and device.provider == name and device.sample.power_watts is not None
            for device in devices
        )

    def is_relieved(self) -> bool:
        return self.fleet.relieved("second", time.monotonic()) == set(GPUS)


@in_loop
async def test_energy_is_read_at_full_pace_by_one_at_a_time(tmp_path: Path) -> None:
    async with running(Two(tmp_path)) as made:
        assert isinstance(made, Two)
        await made.until(lambda: made.served_by("test") and made.is_relieved(), 20.0)
        # The second is told at the next tick of its keeper, and has then one pass to finish.
        settled = made.reads("test") + 10
        await made.until(lambda: made.reads("test") >= settled, 20.0)
        first, second, began = made.reads("test"), made.reads("second"), time.monotonic()
        await made.until(lambda: made.reads("test") >= first + 25, 30.0)
        for _ in range(3):
            await made.supervisor.fresh()
        passes = (time.monotonic() - began) / SAMPLING.state_seconds
        assert made.reads("second") - second <= passes + 3
        made.tell("test", at={"a": "gone"})
        await made.until(lambda: not made.is_relieved(), 20.0)
        second = made.reads("second")
        began = time.monotonic()
        await made.until(lambda: made.reads("second") >= second + 15, 30.0)
        taken = time.monotonic() - began
        assert taken < 15 * SAMPLING.state_seconds, "faster than at the pace of state"
