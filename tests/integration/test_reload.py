"""SIGHUP: all of what the files say counts from then on, or none of it."""

import base64
import json
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon, Reply, Samples
from tests.integration.web_files import HASH, PASSWORD, write

Start = Callable[..., Daemon]
CONFIG = """
metrics: {disable: [gpu_clock_hertz]}
web: {telemetry_path: /gpus}
"""


class Reloaded:
    """A daemon over a configuration file that changes."""

    def __init__(self, start: Start, folder: Path, *arguments: str) -> None:
        self.file = folder / "c.yaml"
        self.file.write_text(CONFIG)
        self.daemon = start("--provider", "simulated", "--config.file", str(self.file), *arguments)
        self.page()

    def page(self) -> Samples:
        return self.daemon.scrape("/gpus")

    def hang_up(self, text: str | bytes) -> list[str]:
        """Reload over this text and return the lines that are logged of it."""
        self.file.write_bytes(text if isinstance(text, bytes) else text.encode())
        before = len(self.daemon.log)
        time.sleep(0.55)  # reloads that follow each other closer than that are one
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.until(lambda: "reloaded" in self.daemon.log[before:])
        time.sleep(0.1)
        return [line for line in self.daemon.log[before:].splitlines() if "reloaded" in line]

    @property
    def is_well(self) -> bool:
        return self.page().value("gpu_exporter_config_last_reload_successful") == 1


@pytest.fixture
def reloaded(start_daemon: Start, tmp_path: Path) -> Reloaded:
    return Reloaded(start_daemon, tmp_path)


def test_what_can_change_changes_at_once_and_nothing_else_is_disturbed(reloaded: Reloaded) -> None:
    page = reloaded.daemon.until(lambda: _with(reloaded.page(), "gpu_energy_joules_total"))
    assert "gpu_clock_hertz" not in page
    assert "gpu_interconnect_link_up" not in page
    began = page.value("gpu_exporter_config_last_reload_success_timestamp_seconds")
    workers = reloaded.daemon.children()
    lines = reloaded.hang_up(
        "metrics: {disable: [gpu_fan_speed_ratio], created: true, links: each}\n"
        "web: {telemetry_path: /gpus, max_requests: 7}\nlog: {format: json}\n"
    )
    assert len(lines) == 1
    said = json.loads(lines[0])  # in the format that counts from here on
    assert said["changed"] == "web.max_requests, metrics.disable, metrics.created, metrics.links, log.format"
    after = reloaded.page()
    assert "gpu_clock_hertz" in after
    assert "gpu_fan_speed_ratio" not in after
    assert {labels["link"] for labels, _ in after.all("gpu_interconnect_link_up")} >= {"0", "1"}
    assert after.value("gpu_exporter_config_last_reload_success_timestamp_seconds") > began
    assert reloaded.daemon.children() == workers
    for labels, joules in page.all("gpu_energy_joules_total"):
        assert after.value("gpu_energy_joules_total", **labels) >= joules


def _with(page: Samples, name: str) -> Samples | None:
    return page if name in page else None


PROBLEMS: Mapping[str | bytes, list[str]] = {
    "metrics: {disable: [gpu_nonsense]}": ["metrics.disable[0]: no metric matches"],
    "log: {level: loud}\nwebb: {}": ["log.level: expected one of", "webb: unknown option"],
    b"\xff\xfe": ["not UTF-8"],
    "web: [": ["line 1"],
    "web: {telemetry_path: /other, systemd_socket: true}\nmetrics: {disable: [gpu_up]}": [
        "web.telemetry_path: cannot change while the exporter runs; restart it",
        "web.systemd_socket: cannot change while the exporter runs; restart it",
    ],
    f"{CONFIG}\nsampling: {{load_seconds: 2}}": ["sampling.load_seconds: cannot change"],
    f"{CONFIG}\nsimulate: none.yaml": ["simulate: cannot change"],
    f"{CONFIG}\nlog: {{level: debug}}\njournal: {{directory: /x}}": ["journal.directory: cannot change"],
}


def test_with_a_problem_nothing_changes_and_each_problem_is_a_line(reloaded: Reloaded) -> None:
    for text, said in PROBLEMS.items():
        lines = reloaded.hang_up(text)
        assert len(lines) == len(said), lines
        for line, problem in zip(lines, said, strict=True):
            assert "level=error" in line
            assert problem in line
        page = reloaded.page()
        assert page.value("gpu_exporter_config_last_reload_successful") == 0
        assert "gpu_up" in page
        assert "gpu_clock_hertz" not in page
        assert b"could not be reloaded" in reloaded.daemon.get("/").body
    assert "level=debug" not in reloaded.daemon.log
    assert len(reloaded.hang_up(CONFIG)) == 1
    assert reloaded.is_well


def test_a_file_that_is_gone_leaves_what_was_and_a_new_one_is_taken(reloaded: Reloaded) -> None:
    reloaded.file.unlink()
    reloaded.daemon.process.send_signal(signal.SIGHUP)
    reloaded.daemon.until(lambda: re.search(r"not reloaded.*No such file", reloaded.daemon.log))
    assert not reloaded.is_well
    reloaded.hang_up(CONFIG)
    assert reloaded.is_well


def test_options_of_the_command_line_win_at_a_reload_as_at_the_start(start_daemon: Start, tmp_path: Path) -> None:
    reloaded = Reloaded(start_daemon, tmp_path, "--log.format", "json")
    (line,) = reloaded.hang_up(CONFIG + "log: {format: logfmt}\n")
    assert json.loads(line)["changed"] == "nothing"


def test_without_a_file_there_is_nothing_to_change(start_daemon: Start) -> None:
    daemon = start_daemon("--provider", "simulated")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until(lambda: 'msg="the configuration is reloaded" changed=nothing' in daemon.log)
    assert daemon.get().status == 200


LOGIN = {"Authorization": "Basic " + base64.b64encode(b"alice:" + PASSWORD).decode()}
USERS = f"basic_auth_users: {{alice: '{HASH}'}}\n"


class Guarded:
    """A daemon with a web configuration that asks for a login."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.folder = folder
        self.web("web.yaml", USERS)
        self.config = folder / "c.yaml"
        self.config.write_text("web: {config_file: web.yaml}\n")
        self.daemon = start("--provider", "simulated", "--config.file", str(self.config), ready=False)
        self.daemon.until(lambda: b"\ngpu_clock_hertz" in self.get().body)
        assert self.daemon.get().status == 401

    def web(self, name: str, text: str) -> None:
        write(self.folder / name, text)

    def get(self) -> Reply:
        return self.daemon.get(headers=LOGIN)

    def hang_up(self) -> list[str]:
        before = len(self.daemon.log)
        time.sleep(0.55)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.until(lambda: " reloaded" in self.daemon.log[before:])
        time.sleep(0.1)
        return [line for line in self.daemon.log[before:].splitlines() if " reloaded" in line]


def test_a_web_configuration_that_is_broken_keeps_the_rest_from_changing(start_daemon: Start, tmp_path: Path) -> None:
    guarded = Guarded(start_daemon, tmp_path)
    guarded.config.write_text("web: {config_file: web.yaml}\nmetrics: {disable: [gpu_clock_hertz]}\n")
    guarded.web("web.yaml", "basic_auth_users: {alice: hunter2}\n")
    lines = guarded.hang_up()
    assert len(lines) == 1
    assert "not reloaded" in lines[0]
    assert "web.yaml: basic_auth_users" in lines[0]
    assert "hunter2" not in guarded.daemon.log
    assert HASH not in guarded.daemon.log
    page = Samples(guarded.get().body.decode())
    assert "gpu_clock_hertz" in page
    assert page.value("gpu_exporter_config_last_reload_successful") == 0
    assert guarded.daemon.get().status == 401
    guarded.web("web.yaml", USERS)
    assert "the configuration is reloaded" in guarded.hang_up()[0]
    page = Samples(guarded.get().body.decode())
    assert "gpu_clock_hertz" not in page
    assert page.value("gpu_exporter_config_last_reload_successful") == 1


def test_a_configuration_that_is_broken_keeps_the_door_as_it_was(start_daemon: Start, tmp_path: Path) -> None:
    guarded = Guarded(start_daemon, tmp_path)
    guarded.web("web.yaml", "{}\n")  # no login any more, which counts when it is asked for only
    guarded.config.write_text("web: {config_file: web.yaml, max_request: 1}\n")
    assert "web.max_request: unknown option" in guarded.hang_up()[0]
    assert guarded.daemon.get().status == 401
    guarded.config.write_text("web: {config_file: web.yaml}\n")
    guarded.hang_up()
    assert guarded.daemon.get().status == 200


def test_a_file_that_is_found_broken_without_being_asked_for_is_told_of_on_the_page(
    start_daemon: Start, tmp_path: Path
) -> None:
    guarded = Guarded(start_daemon, tmp_path)
    for text, well in (("basic_auth_users: [", 0), (USERS, 1)):
        guarded.web("web.yaml", text)
        name = "gpu_exporter_config_last_reload_successful"
        guarded.daemon.until(lambda: Samples(guarded.get().body.decode()).value(name) == well)  # noqa: B023 -- used at once
