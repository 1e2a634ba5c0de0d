"""Does every reading that was heard get into the file before anything else happens, and in few writes?"""

import asyncio
import errno
import io
from collections.abc import Awaitable, Callable, Sequence
from typing import IO

import pytest

from exporter.config import Config, SamplingConfig
from exporter.measure.records import Point
from exporter.measure.samples import HEADER, row
from exporter.measure.session import Session, sampling
from exporter.model import Device, Group, Sample

GPUS = tuple(Device(vendor="nvidia", key=f"GPU-{n}", pci_address=f"0000:0{n}:00.0") for n in range(3))


class Written(io.StringIO):
    """Keeps what each write to the disk took."""

    def __init__(self) -> None:
        super().__init__(newline="")
        self.pieces: list[str] = []

    def flush(self) -> None:
        self.pieces.append(self.getvalue()[sum(map(len, self.pieces)) :])


class Full(io.StringIO):
    """A disk that takes the head, and then nothing."""

    def flush(self) -> None:
        if self.getvalue() != HEADER:
            raise OSError(errno.ENOSPC, "No space left on device")


def hear(session: Session, at: float) -> None:
    """Take a reading of each GPU, as the worker's reports bring them one by one."""
    for device in GPUS:
        sample = Sample(device=device, taken_at={Group.ENERGY: at}, power_watts=100.0 + at)
        session.recorder.observed("nvidia", sample, at, 1e9 + at)


def point(device: Device, at: float) -> Point:
    return Point(at=1e9 + at, monotonic=at, gpu=device.key, power_watts=100.0 + at)


def rows(at: float) -> str:
    return "".join(row(point(device, at)) for device in GPUS)


def recorded(
    file: IO[str], during: Callable[[Session], Awaitable[None]], watch: Callable[[Sequence[Point]], None] | None = None
) -> Session:
    """Run `during` with a session that records three GPUs, read once before."""

    async def run() -> Session:
        session = Session(Config(providers=("nvidia",)))
        session.recorder.enumerated("nvidia", GPUS, 0.0)
        hear(session, 1.0)
        session.gpus = session.recorder.identities()
        with session.recording(file, watch or (lambda _: None)):
            await during(session)
        return session

    return asyncio.run(run())


def test_what_is_heard_in_one_turn_is_written_at_its_end_in_one_piece() -> None:
    file, watched = Written(), list[list[Point]]()

    async def during(session: Session) -> None:
        await asyncio.sleep(0)
        assert file.pieces == [HEADER, rows(1.0)], "the reading of the start"
        hear(session, 2.0)
        hear(session, 3.0)
        then = list[list[str]]()
        asyncio.get_running_loop().call_soon(lambda: then.append(list(file.pieces)))
        await asyncio.sleep(0)
        assert then == [[HEADER, rows(1.0), rows(2.0) + rows(3.0)]], "before whatever comes next"
        hear(session, 4.0)
        await asyncio.sleep(0)

    recorded(file, during, lambda points: watched.append(list(points)))
    assert file.pieces[3] == rows(4.0)
    assert file.getvalue() == HEADER + rows(1.0) + rows(2.0) + rows(3.0) + rows(4.0)
    assert watched[1] == [point(device, at) for at in (2.0, 3.0) for device in GPUS]


def test_what_is_heard_last_is_written_before_the_end() -> None:
    file = io.StringIO(newline="")

    async def during(session: Session) -> None:
        hear(session, 2.0)

    recorded(file, during)
    assert file.getvalue() == HEADER + rows(1.0) + rows(2.0)


def test_whatever_ends_it_what_was_heard_is_written() -> None:
    file = io.StringIO(newline="")

    async def during(session: Session) -> None:
        hear(session, 2.0)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        recorded(file, during)
    assert file.getvalue() == HEADER + rows(1.0) + rows(2.0)


def test_nothing_is_written_after_the_end() -> None:
    file = io.StringIO(newline="")

    async def during(_: Session) -> None:
        pass

    async def after(session: Session) -> None:
        hear(session, 2.0)
        await asyncio.sleep(0)

    session = recorded(file, during)
    file.close()
    asyncio.run(after(session))
    assert not session.lost_rows
    assert len(session.recorder.points) == 2 * len(GPUS)


def test_a_full_disk_costs_rows_and_neither_readings_nor_who_watches_them() -> None:
    watched = list[Point]()

    async def during(session: Session) -> None:
        for at in (2.0, 3.0):
            hear(session, at)
            await asyncio.sleep(0)

    session = recorded(Full(newline=""), during, watched.extend)
    assert session.lost_rows == "No space left on device"
    assert watched == session.recorder.points == [point(device, at) for at in (1.0, 2.0, 3.0) for device in GPUS]


def test_nothing_is_read_that_no_result_needs() -> None:
    asked = sampling(SamplingConfig(profiling_seconds=1.0, pcie_bytes=True, processes_seconds=1.0), 0.1)
    assert (asked.energy_seconds, asked.profiling_seconds, asked.pcie_bytes) == (0.1, None, False)
    assert (asked.load_seconds, asked.state_seconds) == (1.0, 5.0)
    assert asked.processes_seconds >= 600.0
    slow = sampling(SamplingConfig(), 60.0)
    assert (slow.energy_seconds, slow.load_seconds, slow.state_seconds) == (60.0, 60.0, 60.0)
