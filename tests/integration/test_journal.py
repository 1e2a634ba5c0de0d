"""Totals over restarts of the real daemon: killed, stopped, without power, without a directory that can be written.

It is killed $JOURNAL_KILLS times, 10 by default.
"""

import http.client
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from exporter.config import SamplingConfig, is_averaged
from exporter.fleet import Fleet
from exporter.journal import Places
from exporter.journal.format import decode, encode
from exporter.journal.places import boot_id
from exporter.journal.store import LIVE, STOPPED, Store
from exporter.model import Group
from exporter.providers.protocol import OpenContext
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import open_machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import ROOT, Daemon, Samples, running

KILLS = int(os.environ.get("JOURNAL_KILLS", "10"))
SCRAPE_SECONDS = 0.1
LIFE_SECONDS = (0.05, 2.0)
"""A daemon is killed within these from its first page on."""
QUALIFY_SECONDS = 70
RETRY_SECONDS = 30.0
"""A journal that could not be written is tried again every 5 s."""
TOTAL, START, UP = "gpu_energy_joules_total", "gpu_energy_start_timestamp_seconds", "gpu_exporter_journal_up"
SCENARIO = """
epoch_seconds: {epoch:.3f}
devices:
  - model: H100-SXM
    load: {{pattern: constant, watts: 500}}
  - model: MI300X
    load: {{pattern: square, watts: 600, low_watts: 200, period_seconds: 1.3}}
"""

Start = Callable[..., Daemon]


class Seen(NamedTuple):
    """What one page says of one device."""

    total: float
    start: float
    at: float
    """CLOCK_MONOTONIC seconds of the reading."""


class Host:
    """A machine whose GPUs are known, and the directories of its exporter."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.at = Places(folder / "run", folder / "state")
        self.scenario = folder / "machine.yaml"
        epoch = round(time.monotonic() - 1_000, 3)
        self.scenario.write_text(SCENARIO.format(epoch=epoch))
        self.machine = Machine(load_scenario(self.scenario.read_text(), name="machine.yaml"), epoch)
        self.keys = [device.key for device in self.machine.devices]
        self._start = start
        for directory in self.at:
            directory.mkdir()

    @property
    def options(self) -> list[str]:
        directories = [f"--journal.directory={self.at.live}", f"--journal.state-directory={self.at.stopped}"]
        return ["--simulate", str(self.scenario), *directories]

    def start(self, **options: object) -> Daemon:
        """Start the daemon and wait until it shows all totals."""
        daemon = self._start(*self.options, **options)
        daemon.scrape_until(self.complete)
        return daemon

    def complete(self, page: Samples) -> bool:
        return len(page.all(TOTAL)) == len(self.keys)

    def see(self, page: Samples) -> dict[str, Seen]:
        offset = time.time() - time.monotonic()
        return {
            key: Seen(
                total,
                page.value(START, uuid=key),
                page.value("gpu_last_sample_timestamp_seconds", uuid=key) - offset,
            )
            for key in self.keys
            if (total := page.get(TOTAL, uuid=key)) is not None
        }

    def prepare(self) -> None:
        """Leave the journal of a daemon that has run until now and was killed: its accumulators are qualified."""
        sampling, now = SamplingConfig(), time.monotonic()
        moment = now - QUALIFY_SECONDS
        opened = open_machine(self.machine, OpenContext(between_calls=lambda: None), lambda: moment)
        fleet = Fleet([("simulated", True)], sampling)
        devices = opened.provider.devices()
        fleet.enumerated("simulated", devices, moment)
        due = dict.fromkeys(self.keys, moment)
        while moment < now:
            for device in devices:
                if moment >= due[device.key]:
                    sample = opened.provider.read(device, frozenset({Group.ENERGY}))
                    fleet.observed("simulated", sample, moment, moment + time.time() - time.monotonic())
                    averaged = is_averaged(sample.power_kind, sample.power_window_seconds)
                    due[device.key] += sampling.energy_period(averaged=averaged)
            moment += 0.05
        store = Store(self.at, boot_id())
        assert store.start() == (None, "")
        store.write(fleet.record(now))
        store.close()

    def reboot(self) -> None:
        """Make the files those of another boot; tmpfs is empty after a boot."""
        for path in (self.at.live / LIVE, self.at.stopped / STOPPED):
            if path.exists():
                content = msgspec.structs.replace(decode(path.read_bytes()), boot_id="another boot")
                path.write_bytes(encode(content))


@pytest.fixture
def host(tmp_path: Path, start_daemon: Start) -> Host:
    return Host(tmp_path, start_daemon)


def stop(daemon: Daemon) -> None:
    assert daemon.stop() == 0, daemon.log


def kill(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait(10)


def test_kill_at_any_moment_costs_no_joule_and_no_total_falls(tmp_path: Path, start_daemon: Start) -> None:
    host = Host(tmp_path, start_daemon)
    host.prepare()
    random = Random("kill")
    first: dict[str, Seen] = {}
    last: dict[str, Seen] = {}
    pages = 0
    for life in range(KILLS + 1):
        with running(*host.options, log=tmp_path / f"life{life}.log", ready=False) as daemon:
            daemon.scrape_until(host.complete)
            killer = threading.Timer(random.uniform(*LIFE_SECONDS), daemon.process.kill)
            killer.start()
            try:
                while True:
                    seen = host.see(daemon.scrape())
                    for key, one in seen.items():
                        before = last.get(key, one)
                        assert one.start == before.start
                        assert one.total >= before.total
                        last[key] = one
                        first.setdefault(key, one)
                    pages += 1
                    time.sleep(SCRAPE_SECONDS)
            except (OSError, http.client.HTTPException):
                assert daemon.process.wait(10) == -signal.SIGKILL, daemon.log
            finally:
                killer.cancel()
            assert "Traceback" not in daemon.log
    assert pages > 2 * KILLS
    assert len(last) == len(host.keys)
    for key in host.keys:
        truth = host.machine.energy_joules(key, last[key].at) - host.machine.energy_joules(key, first[key].at)
        assert last[key].total - first[key].total == pytest.approx(truth, rel=0.01)


def test_a_clean_stop_and_a_start_lose_nothing(host: Host) -> None:
    host.prepare()
    daemon = host.start()
    before = host.see(daemon.scrape())
    labels = daemon.scrape().all("gpu_up")
    stop(daemon)
    assert (host.at.stopped / STOPPED).exists()
    time.sleep(2.5)  # longer than readings are joined over
    page = host.start().scrape()
    assert page.all("gpu_up") == labels
    assert page.value(UP) == 1
    assert not (host.at.stopped / STOPPED).exists()
    for key, after in host.see(page).items():
        truth = host.machine.energy_joules(key, after.at) - host.machine.energy_joules(key, before[key].at)
        assert after.total - before[key].total == pytest.approx(truth, rel=0.05)
        assert after.start == before[key].start
        assert page.value("gpu_energy_qualified", uuid=key) == 1


def test_a_start_that_finds_its_port_taken_leaves_what_it_has_found(host: Host, start_daemon: Start) -> None:
    host.prepare()
    stop(host.start())
    other = start_daemon("--simulate", str(host.scenario))
    taken = other.url.removeprefix("http://")
    failed = subprocess.run(
        [sys.executable, "-m", "exporter", *host.options, "--web.listen-address", taken],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=20,
        check=False,
    )
    assert failed.returncode == 1
    content = decode((host.at.stopped / STOPPED).read_bytes())
    assert [card.key for card in content.fleet.cards] == host.keys


def test_after_a_clean_stop_and_a_reboot_totals_go_on_and_accumulators_begin_anew(host: Host) -> None:
    host.prepare()
    daemon = host.start()
    before = host.see(daemon.scrape())
    stop(daemon)
    host.reboot()
    (host.at.live / LIVE).unlink()
    page = host.start().scrape()
    for key, after in host.see(page).items():
        assert after.start == before[key].start
        assert before[key].total <= after.total < before[key].total + 700 * (after.at - before[key].at)
        assert page.value("gpu_energy_qualified", uuid=key) == 0


def test_after_a_loss_of_power_totals_begin_at_0(host: Host) -> None:
    host.prepare()
    daemon = host.start()
    stop(daemon)
    daemon = host.start()  # which takes the copy
    before = host.see(daemon.scrape())
    kill(daemon)
    (host.at.live / LIVE).unlink()
    fresh(host, host.start(), before)


def test_a_live_journal_that_outlived_a_boot_is_not_used(host: Host) -> None:
    host.prepare()
    daemon = host.start()
    before = host.see(daemon.scrape())
    kill(daemon)
    host.reboot()
    daemon = host.start()
    fresh(host, daemon, before)
    assert "of another boot" in daemon.log


def test_a_truncated_journal_is_refused_by_name_and_kept(host: Host) -> None:
    host.prepare()
    daemon = host.start()
    before = host.see(daemon.scrape())
    kill(daemon)
    path = host.at.live / LIVE
    path.write_bytes(path.read_bytes()[:-1])
    daemon = host.start()
    fresh(host, daemon, before)
    assert f"{path} is truncated" in daemon.log
    assert path.with_name(f"{LIVE}.refused").exists()
    assert "Traceback" not in daemon.log


def fresh(host: Host, daemon: Daemon, before: dict[str, Seen]) -> None:
    """Hold the totals to have begun at 0, a moment ago."""
    for key, after in host.see(daemon.scrape()).items():
        assert after.start > before[key].start
        assert after.total < min(before[key].total, 700 * (time.time() - after.start + 1))


def test_a_second_instance_says_that_it_keeps_nothing(host: Host) -> None:
    first, second = host.start(), host.start()
    assert (first.scrape().value(UP), second.scrape().value(UP)) == (1, 0)
    assert second.log.count("there is no journal") == 1
    assert "another instance uses it" in second.log
    assert "there is no journal" not in first.log


def test_a_disk_that_is_full_takes_the_journal_away_until_there_is_room(host: Host) -> None:
    daemon = host.start()
    before = host.see(daemon.scrape())
    limit = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1_000, limit[1]))
    page = daemon.scrape_until(lambda page: page.value(UP) == 0)
    assert list(host.at.live.glob("*.journal*")) == []
    later = host.see(daemon.scrape_until(lambda page: host.see(page)[host.keys[0]].total > before[host.keys[0]].total))
    assert all(later[key].total >= before[key].total for key in host.keys), page.page
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limit)
    daemon.scrape_until(lambda page: page.value(UP) == 1, RETRY_SECONDS)
    kill(daemon)
    assert all(after.start == before[key].start for key, after in host.see(host.start().scrape()).items())


def test_a_directory_that_is_taken_away_is_made_again(host: Host) -> None:
    daemon = host.start()
    for path in host.at.live.iterdir():
        path.unlink()
    host.at.live.rmdir()
    daemon.until(lambda: daemon.scrape() and (host.at.live / LIVE).exists())
    assert daemon.scrape().value(UP) == 1
    assert "there is no journal" not in daemon.log


def test_a_directory_that_is_replaced_by_an_older_one_brings_no_older_total_back(host: Host) -> None:
    daemon = host.start()
    older = host.at.live.with_name("older")
    shutil.copytree(host.at.live, older)
    before = host.see(daemon.scrape())
    host.at.live.rename(host.at.live.with_name("moved"))
    older.rename(host.at.live)
    far = before[host.keys[0]].total + 1_000  # more than is counted until the first page after the start
    later = host.see(daemon.scrape_until(lambda page: host.see(page)[host.keys[0]].total > far))
    kill(daemon)
    after = host.see(host.start().scrape())
    assert all(after[key].start == later[key].start and after[key].total >= later[key].total for key in host.keys)


@pytest.fixture
def small(host: Host) -> Iterator[Callable[..., None]]:
    """Mount a file system of its own on the directory of the live journal; call the fixture to mount it otherwise."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")

    def mount(*options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(host.at.live)]
        subprocess.run(command, check=True, capture_output=True)

    with ExitStack() as stack:
        try:
            mount("size=256k")
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("this root cannot mount")
        stack.callback(subprocess.run, ["umount", "--lazy", str(host.at.live)], check=True)
        yield lambda *options: mount("remount", *options)


def test_a_directory_that_is_read_only_at_the_start_means_no_journal(host: Host, small: Callable[..., None]) -> None:
    host.prepare()
    small("ro")
    daemon = host.start()
    assert daemon.scrape().value(UP) == 0
    assert f"{host.at.live}: Read-only file system" in daemon.log
    small("rw")
    daemon.scrape_until(lambda page: page.value(UP) == 1, RETRY_SECONDS)
    assert daemon.log.count("there is no journal") == 1


def test_a_directory_that_turns_read_only_is_told_with_what_to_do(host: Host, small: Callable[..., None]) -> None:
    daemon = host.start()
    filler = host.at.live / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    daemon.scrape_until(lambda page: page.value(UP) == 0)
    assert "No space left on device" in daemon.log
    assert not (host.at.live / LIVE).exists()
    filler.unlink()
    daemon.scrape_until(lambda page: page.value(UP) == 1, RETRY_SECONDS)
    # A descriptor that is open for writing keeps a file system from turning read-only, unless it breaks.
    before = host.see(daemon.scrape())
    kill(daemon)
    small("ro")
    fresh(host, host.start(), before)


def test_directories_of_the_unit_are_found_in_the_environment(host: Host, start_daemon: Start) -> None:
    environment = {"RUNTIME_DIRECTORY": f"{host.at.live}:/nowhere", "STATE_DIRECTORY": str(host.at.stopped)}
    daemon = start_daemon("--simulate", str(host.scenario), env=environment)
    assert daemon.scrape_until(host.complete).value(UP) == 1
    stop(daemon)
    assert (host.at.live / LIVE).exists()
    assert (host.at.stopped / STOPPED).exists()


def test_without_a_directory_there_is_no_journal_and_the_log_says_so(host: Host, start_daemon: Start) -> None:
    daemon = start_daemon("--simulate", str(host.scenario))
    assert UP not in daemon.scrape()
    assert "no directory for a journal" in daemon.log
