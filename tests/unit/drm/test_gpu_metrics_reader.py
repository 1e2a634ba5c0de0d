"""A table that was torn while it was read is read again once; what it says then counts."""

import errno
from functools import partial
from pathlib import Path

import pytest

from exporter.kernel import read_all
from exporter.providers.drm.gpu_metrics import Metrics, RefusedError, TableReader
from tests.unit.drm.tables import table


def written(joules: int, seconds: int, content: int = 6) -> bytes:
    return table(1, content, energy_accumulator=joules * 65536, system_clock_counter=seconds * 10**9)


class File:
    """Answers one after another, the last one for ever."""

    def __init__(self, *answers: bytes | OSError | None) -> None:
        self.answers = list(answers)
        self.reads = 0

    def __call__(self) -> bytes | None:
        self.reads += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


def joules(metrics: Metrics | None) -> float | None:
    assert metrics is not None
    return metrics.energy_counter_joules


def test_what_is_whole_is_read_once() -> None:
    file = File(written(10, 1), written(10, 2), written(11, 2))
    reader = TableReader()
    assert [joules(reader.read(file)) for _ in range(3)] == [10.0, 10.0, 11.0]
    assert file.reads == 3


@pytest.mark.parametrize("torn", [written(10, 1)[:600], written(10, 1)[:2], b"", b"\0\0" + written(10, 1)[2:]])
def test_what_does_not_fit_its_size_is_read_again(torn: bytes) -> None:
    file = File(torn, written(10, 1))
    assert joules(TableReader().read(file)) == 10.0
    assert file.reads == 2


@pytest.mark.parametrize("fallen", [(9, 6), (11, 4)])
def test_what_has_fallen_is_read_again(fallen: tuple[int, int]) -> None:
    file = File(written(10, 5), written(*fallen), written(12, 6))
    reader = TableReader()
    assert [joules(reader.read(file)) for _ in range(2)] == [10.0, 12.0]
    assert file.reads == 3


def test_a_reset_is_believed() -> None:
    file = File(written(1000, 50), written(1, 51))
    reader = TableReader()
    assert [joules(reader.read(file)) for _ in range(3)] == [1000.0, 1.0, 1.0]
    assert file.reads == 4


def test_torn_for_ever_is_refused_and_the_next_table_is_welcome() -> None:
    file = File(written(10, 1)[:600], written(10, 1)[:600], written(10, 1))
    reader = TableReader()
    with pytest.raises(RefusedError, match="cut short"):
        reader.read(file)
    assert file.reads == 2
    assert joules(reader.read(file)) == 10.0


@pytest.mark.parametrize("nothing", [b"\xff" * 120, table(2, 0, system_clock_counter=1), table(1, 3)])
def test_what_a_second_look_would_not_change_is_not_read_again(nothing: bytes) -> None:
    file = File(nothing)
    with pytest.raises(RefusedError):
        TableReader().read(file)
    assert file.reads == 1


@pytest.mark.parametrize(
    "answers", [(None,), (written(10, 1)[:9], None)], ids=["no file", "the file went while it was torn"]
)
def test_no_table(answers: tuple[bytes | None, ...]) -> None:
    assert TableReader().read(File(*answers)) is None


def test_errors_of_the_file_are_those_of_the_caller() -> None:
    with pytest.raises(PermissionError):
        TableReader().read(File(OSError(errno.EPERM, "asleep")))


def test_another_version_of_the_table_is_no_step_back() -> None:
    file = File(written(10, 5), written(10, 6, content=7))
    reader = TableReader()
    reader.read(file)
    metrics = reader.read(file)
    assert metrics is not None
    assert (metrics.table, file.reads) == ("v1_7", 2)


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "gpu_metrics"
    path.write_bytes(table(1, 8, energy_accumulator=65536))
    assert joules(TableReader().read(partial(read_all, str(path)))) == 1.0
