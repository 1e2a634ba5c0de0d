"""Which file counts at a start, over real directories."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from exporter.fleet.record import FleetRecord
from exporter.journal.directory import LOCK
from exporter.journal.places import Places
from exporter.journal.store import LIVE, RETRY_SECONDS, STOPPED, Store, StoreError
from tests.unit.journal.records import BOOT, OTHER_BOOT, joules, record

FIRST, SECOND = record(seconds=70), record(seconds=80)


@pytest.fixture
def at(tmp_path: Path) -> Places:
    return Places(tmp_path / "run", tmp_path / "state")


def store(at: Places, boot: str = BOOT, now: float = 2_000.0) -> Store:
    return Store(at, boot, lambda: now)


def left(at: Places, boot: str = BOOT, now: float = 2_000.0) -> FleetRecord | None:
    """Start, tell what was found, and crash."""
    made = store(at, boot, now)
    found, reason = made.start()
    made.close()
    assert reason == ""
    return found


def crashed(at: Places, fleet: FleetRecord = FIRST) -> None:
    made = store(at)
    assert made.start() == (None, "")
    made.write(fleet)
    made.close()


def stopped(at: Places, fleet: FleetRecord = FIRST) -> None:
    made = store(at)
    made.start()
    made.write(fleet)
    made.leave(fleet)
    made.close()


def blocked(directory: Path, name: str = LIVE) -> Path:
    """Make it impossible to write the file, for root as well; returns what to remove."""
    obstacle = directory / f"{name}.new" / "obstacle"
    obstacle.mkdir(parents=True)
    return obstacle


def unblock(obstacle: Path) -> None:
    obstacle.rmdir()
    obstacle.parent.rmdir()


def test_without_a_journal_there_is_nothing_to_go_on_from(at: Places) -> None:
    assert left(at) is None
    assert stat.S_IMODE((at.live / LIVE).stat().st_mode) == 0o600


def test_after_a_crash_the_newest_totals_go_on(at: Places) -> None:
    made = store(at)
    made.start()
    made.write(FIRST)
    made.write(SECOND)
    made.close()
    assert left(at) == SECOND
    assert left(at) == SECOND


def test_after_a_crash_and_a_reboot_nothing_counts(at: Places) -> None:
    crashed(at)
    assert left(at, OTHER_BOOT) is None


def test_a_clock_that_is_behind_the_journal_is_that_of_another_boot(at: Places) -> None:
    crashed(at)
    assert left(at, now=1_999.0) is None


def test_after_a_clean_stop_and_a_reboot_totals_go_on_without_labels_or_anchors(at: Places) -> None:
    stopped(at)
    found = left(at, OTHER_BOOT, now=5.0)
    assert found is not None
    assert joules(found) == pytest.approx(joules(FIRST))
    for card in found.cards:
        assert card.order is None
        assert card.meter is not None
        assert card.meter.ledger is not None
        assert card.meter.ledger.accumulator.joules is None
        assert not card.meter.ledger.qualified
        assert card.meter.ledger.at == 5.0
        assert card.meter.start_timestamp > 1e9
    assert found.numbers == {}


def test_after_a_clean_stop_anchors_go_on_in_the_same_boot_without_the_live_file_as_well(at: Places) -> None:
    stopped(at)
    (at.live / LIVE).unlink()
    assert left(at) == FIRST


def test_the_copy_of_a_clean_stop_is_gone_before_anything_is_served(at: Places) -> None:
    stopped(at)
    assert (at.stopped / STOPPED).exists()
    assert left(at, OTHER_BOOT) is not None
    assert not (at.stopped / STOPPED).exists()
    # Power is lost now: tmpfs is empty at the next boot.
    (at.live / LIVE).unlink()
    assert left(at, "a third boot") is None


def test_a_crash_between_the_start_and_the_first_page_loses_nothing(at: Places) -> None:
    stopped(at)
    found = left(at, OTHER_BOOT)
    assert found is not None
    assert left(at, OTHER_BOOT) == found


def test_one_directory_serves_as_both(tmp_path: Path) -> None:
    both = Places(tmp_path, tmp_path / "." / "x" / "..")
    (tmp_path / "x").mkdir()
    stopped(both)
    assert (tmp_path / STOPPED).exists()
    assert left(both, OTHER_BOOT) is not None
    assert not (tmp_path / STOPPED).exists()
    assert left(both, OTHER_BOOT) is not None
    assert left(both, "a third boot") is None


def test_a_second_instance_keeps_nothing_and_disturbs_nothing(at: Places) -> None:
    first = store(at)
    first.start()
    first.write(FIRST)
    second = store(at)
    found, reason = second.start()
    assert found is None
    assert "another instance uses it" in reason
    with pytest.raises(StoreError, match="another instance uses it"):
        second.write(SECOND)
    second.leave(SECOND)
    first.write(FIRST)
    first.close()
    assert left(at) == FIRST
    second.close()


def test_an_instance_that_had_no_directory_takes_it_up_when_it_is_free_and_no_older_total_comes_back(
    at: Places,
) -> None:
    first, second = store(at), store(at)
    first.start()
    second.start()
    first.write(FIRST)
    first.leave(FIRST)
    first.close()
    second.write(SECOND)
    assert not (at.stopped / STOPPED).exists()
    second.close()
    assert left(at) == SECOND


@pytest.mark.parametrize("content", [b"", b"garbage", b"gpu-exporter journal 9 x\n"])
@pytest.mark.parametrize("which", [LIVE, STOPPED])
def test_a_file_that_is_not_understood_is_kept_aside(
    at: Places, which: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(at)
    path = (at.live if which == LIVE else at.stopped) / which
    path.write_bytes(content)
    assert left(at) == FIRST  # the other one counts
    aside = path.with_name(f"{which}.refused")
    assert aside.read_bytes() == content
    assert f"{path} " in caplog.text
    assert str(aside) in caplog.text


def test_a_truncated_journal_is_kept_aside_and_totals_begin_at_0(at: Places) -> None:
    crashed(at)
    path = at.live / LIVE
    path.write_bytes(path.read_bytes()[:-100])
    assert left(at) is None
    assert path.with_name(f"{LIVE}.refused").exists()


def test_what_is_no_file_of_ours_is_refused(at: Places, caplog: pytest.LogCaptureFixture) -> None:
    crashed(at)
    path = at.live / LIVE
    path.rename(at.live / "elsewhere")
    path.symlink_to("elsewhere")
    assert left(at) is None
    assert "is a symbolic link" in caplog.text
    path.unlink()
    os.mkfifo(path)
    assert left(at) is None
    assert "is not a regular file" in caplog.text
    path.unlink()
    path.write_bytes(b"x" * (17 << 20))
    assert left(at) is None
    assert "is larger than 16 MiB" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(at: Places, caplog: pytest.LogCaptureFixture) -> None:
    crashed(at)
    os.chown(at.live / LIVE, 12345, 12345)
    assert left(at) is None
    assert "belongs to user 12345" in caplog.text


def test_a_write_that_fails_removes_the_journal(at: Places) -> None:
    made = store(at)
    made.start()
    made.write(FIRST)
    obstacle = blocked(at.live)
    with pytest.raises(StoreError, match=str(at.live)):
        made.write(SECOND)
    assert not (at.live / LIVE).exists()
    made.close()
    unblock(obstacle)
    assert left(at) is None


def test_it_is_taken_up_again_when_writing_works(at: Places) -> None:
    made = store(at)
    made.start()
    obstacle = blocked(at.live)
    for _ in range(2):
        with pytest.raises(StoreError):
            made.write(FIRST)
    unblock(obstacle)
    made.write(SECOND)
    made.close()
    assert left(at) == SECOND


def test_a_directory_that_was_removed_is_taken_up_again(at: Places) -> None:
    made = store(at)
    made.start()
    made.write(FIRST)
    for name in (LIVE, LOCK):
        (at.live / name).unlink()
    at.live.rmdir()
    made.write(SECOND)
    made.close()
    assert left(at) == SECOND


def test_a_journal_that_was_moved_away_is_not_usable_once_writing_has_failed(at: Places) -> None:
    made = store(at)
    made.start()
    made.write(FIRST)
    kept = at.live / "kept"
    kept.hardlink_to(at.live / LIVE)
    blocked(at.live)
    with pytest.raises(StoreError):
        made.write(SECOND)
    made.close()
    assert kept.read_bytes() == b""


def test_where_nothing_can_be_kept_totals_go_on_once_and_never_come_back(at: Places) -> None:
    crashed(at)
    obstacle = blocked(at.live)
    made = store(at)
    found, reason = made.start()
    assert found == FIRST
    assert str(at.live) in reason
    made.close()
    unblock(obstacle)
    assert left(at) is None


def test_a_directory_that_cannot_be_made_means_no_journal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "missing" / "part"):
        found, reason = store(Places(path, path)).start()
        assert found is None
        assert reason.startswith(f"{path}: ")


def test_without_a_state_directory_the_rest_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    at = Places(tmp_path / "run", tmp_path / "missing" / "state")
    stopped(at)
    assert left(at) == FIRST
    assert "a clean stop will leave nothing for after a reboot" in caplog.text


def test_a_copy_that_cannot_be_written_is_told(at: Places) -> None:
    made = store(at)
    made.start()
    made.write(FIRST)
    blocked(at.stopped, STOPPED)
    with pytest.raises(StoreError, match=str(at.stopped)):
        made.leave(FIRST)
    made.close()
    assert left(at) == FIRST


def test_of_two_files_of_this_boot_the_newer_one_counts(at: Places) -> None:
    stopped(at, FIRST)
    live = (at.live / LIVE).read_bytes()
    newer = store(at, now=2_001.0)
    newer.start()
    newer.write(SECOND)
    newer.leave(SECOND)
    newer.close()
    (at.live / LIVE).write_bytes(live)  # as if it could neither be written nor removed
    assert left(at, now=2_002.0) == SECOND


def test_a_directory_that_was_replaced_while_writing_works_is_taken_up_and_no_older_total_comes_back(
    at: Places,
) -> None:
    made = store(at)
    made.start()
    made.write(FIRST)
    moved = at.live.with_name("moved")
    at.live.rename(moved)
    shutil.copytree(moved, at.live)
    made.write(SECOND)
    made.close()
    assert not (moved / LIVE).exists()
    assert left(at) == SECOND


def test_without_the_live_directory_the_copy_is_not_used_since_a_live_file_may_come_back(at: Places) -> None:
    stopped(at)
    away = at.live.with_name("away")
    at.live.rename(away)
    at.live.write_text("in the way")
    made = store(at)
    assert made.start()[0] is None
    made.close()


@pytest.mark.parametrize("clean", [False, True])
def test_a_copy_that_was_out_of_reach_at_the_start_does_not_come_back(at: Places, clean: bool) -> None:
    stopped(at)
    away = at.stopped.with_name("away")
    at.stopped.rename(away)
    at.stopped.write_text("in the way")
    times = [2_000.0]
    made = Store(at, OTHER_BOOT, lambda: times[0])
    assert made.start() == (None, "")
    made.write(SECOND)
    at.stopped.unlink()
    away.rename(at.stopped)
    if clean:
        made.leave(SECOND)
    else:
        times[0] += RETRY_SECONDS
        made.write(SECOND)
    made.close()
    found = left(at, "a third boot", 3_000.0)
    assert (found and joules(found)) == (joules(SECOND) if clean else None)
