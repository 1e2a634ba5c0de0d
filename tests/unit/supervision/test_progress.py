import os
import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.supervision.progress import Progress, Read, shared


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = shared()
    yield descriptor
    os.close(descriptor)


def test_what_the_child_tells_is_seen_by_the_parent_and_nothing_is_under_way_at_first(descriptor: int) -> None:
    with closing(Progress(descriptor)) as child, closing(Progress(descriptor)) as parent:
        assert parent.reads() == ()
        child.begin("GPU-1")
        assert parent.reads() == (Read(1, "GPU-1"),)
        child.begin("GPU-2")
        assert parent.reads() == (Read(1, "GPU-1"), Read(2, "GPU-2"))
        child.end()
        assert parent.reads() == (Read(1, "GPU-1"),)
        child.end()
        assert parent.reads() == ()
        child.begin("GPU-1")
        assert parent.reads() == (Read(3, "GPU-1"),), "another read of the same device"


def test_what_was_under_way_is_seen_after_the_child_is_gone(descriptor: int) -> None:
    with closing(Progress(descriptor)) as parent:
        pid = os.fork()
        if pid == 0:
            Progress(descriptor).begin("0000:65:00.0")
            os.kill(os.getpid(), signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
        assert parent.reads() == (Read(1, "0000:65:00.0"),)


@given(st.lists(st.text(), max_size=4))
def test_any_key_is_told_as_far_as_there_is_room_and_none_spoils_another(keys: list[str]) -> None:
    descriptor = shared()
    with closing(Progress(descriptor)) as child, closing(Progress(descriptor)) as parent:
        os.close(descriptor)
        for key in keys:
            child.begin(key)
        told = keys[:1] + keys[-1:] if len(keys) > 1 else keys
        seen = [read.key for read in parent.reads()]
        assert len(seen) == len(told)
        for key, text in zip(told, seen, strict=True):
            assert len(key.encode()) > 490 or text == key
        for _ in keys:
            child.end()
        assert parent.reads() == ()


def test_a_key_that_is_too_long_is_cut(descriptor: int) -> None:
    with closing(Progress(descriptor)) as child, closing(Progress(descriptor)) as parent:
        child.begin("k" * 5000)
        child.begin("GPU-2")
        outer, inner = parent.reads()
        assert outer.key == "k" * len(outer.key)
        assert 490 < len(outer.key) < 504
        assert inner == Read(2, "GPU-2")


def test_it_is_said_what_there_is_none_of_and_nothing_is_kept() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    held = sorted(Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="no memory can be shared with it: File too large"):
            shared()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(Path("/proc/self/fd").iterdir()) == held
