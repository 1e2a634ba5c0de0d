"""Journals that a disk, a crash or a person damaged: what is left counts as a whole or not at all, at every byte."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fleet.record import FleetRecord
from exporter.journal import Places
from exporter.journal.format import VERSION, Content, JournalError, decode, encode
from exporter.journal.store import LIVE, STOPPED, Store
from tests.unit.fleet.hosts import Host
from tests.unit.fuzz.documents import TREES, Stopwatch, many
from tests.unit.journal.records import BOOT, OTHER_BOOT, joules, record
from tests.unit.journal.test_format import framed

FIRST, SECOND = record(seconds=70), record(seconds=80)
NOW = 2_000.0
LIVE_DATA = encode(Content(boot_id=BOOT, at=NOW, fleet=SECOND))
STOPPED_DATA = encode(Content(boot_id=BOOT, at=NOW - 1, fleet=FIRST))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def started(folder: Path, live: bytes | None, stopped: bytes | None, boot: str = BOOT) -> FleetRecord | None:
    """Return what a start makes of these two files."""
    at = Places(folder / "run", folder / "state")
    for directory, name, data in ((at.live, LIVE, live), (at.stopped, STOPPED, stopped)):
        directory.mkdir(exist_ok=True)
        (directory / name).unlink(missing_ok=True)
        if data is not None:
            (directory / name).write_bytes(data)
    store = Store(at, boot, lambda: NOW)
    try:
        found, reason = store.start()
        assert reason == ""
        return found
    finally:
        store.close()


def test_a_file_that_is_cut_at_any_byte_is_refused() -> None:
    for end in range(len(LIVE_DATA)):
        with pytest.raises(JournalError):
            decode(LIVE_DATA[:end])


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    data = bytearray(whole)
    kind = draw(st.sampled_from(["cut", "flip", "version", "zeros", "doubled", "random", "tree", "none"]))
    at = draw(st.integers(0, len(data) - 1))
    if kind == "cut":
        del data[at:]
    elif kind == "flip":
        for _ in range(draw(st.integers(1, 8))):
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif kind == "version":
        return whole.replace(b"journal %d " % VERSION, b"journal %d " % draw(st.integers(0, 10**12)), 1)
    elif kind == "zeros":  # what file systems leave of a file that was not synced
        data[at:] = bytes(len(data) - at)
    elif kind == "doubled":
        return whole + whole
    elif kind == "random":
        return draw(st.binary(max_size=300))
    elif kind == "tree":
        return framed(msgspec.msgpack.encode(draw(TREES.filter(fits))))
    return bytes(data)


def fits(tree: object) -> bool:
    try:
        msgspec.msgpack.encode(tree)
    except (OverflowError, UnicodeEncodeError):
        return False
    return True


@many(200)
@given(
    live=st.none() | damaged(LIVE_DATA),
    stopped=st.none() | damaged(STOPPED_DATA),
    boot=st.sampled_from([BOOT, OTHER_BOOT]),
)
def test_a_start_goes_on_from_a_whole_file_or_from_nothing(
    live: bytes | None, stopped: bytes | None, boot: str, folder: Path
) -> None:
    with Stopwatch():
        found = started(folder, live, stopped, boot)
    if boot == BOOT and live == LIVE_DATA:
        expected = joules(SECOND)
    elif stopped == STOPPED_DATA:
        expected = joules(FIRST)
    else:
        expected = {}
    assert (joules(found) if found is not None else {}) == pytest.approx(expected)
    # What was taken over is in force as a whole, and is what the next start finds.
    host = Host()
    if found is not None:
        host.fleet.restore(found, NOW)
    assert joules(host.fleet.record(NOW)) == pytest.approx(expected)
    assert joules(decode((folder / "run" / LIVE).read_bytes()).fleet) == pytest.approx(expected)
