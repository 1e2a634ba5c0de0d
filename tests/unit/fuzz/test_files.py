"""Configuration, web configuration and scenario: any file is understood, or told about by lines, in bounded time."""

import contextlib
import io
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter import cli
from exporter.checks import check
from exporter.config import Config, ConfigError, load_config, parse_config
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import ScenarioError, load_scenario
from exporter.web.guard import Guard
from tests.unit.fuzz.documents import Stopwatch, files, judged, many

ROOT = Path(__file__).parents[3]
CONFIGURATIONS = [
    (ROOT / "config/gpu-exporter.yaml").read_bytes(),
    b"""
providers: [nvidia, simulated]
simulate: s.yaml
web: {listen_addresses: ["127.0.0.1:0", "[::1]:9"], telemetry_path: /a/b, max_requests: 0, config_file: web.yml}
sampling: {energy_seconds: 0.1, load_seconds: 1, state_seconds: 5.5, deadline_seconds: 1e0}
workers: {max_age_seconds: null, max_memory_bytes: 20000000, exit_after_seconds: 60}
metrics: {disable: ["gpu_pcie_*", gpu_up], created: true}
journal: {directory: run, state_directory: /var/lib/x}
log: {level: debug, format: json}
""",
]
WEB_CONFIGURATIONS = [path.read_bytes() for path in sorted((ROOT / "config/web-config").glob("*.yml"))]
SCENARIOS = [path.read_bytes() for path in sorted((ROOT / "config/scenarios").glob("*.yaml"))]
LARGE_SECONDS = 1.5
NAME = "a file: of ours.yaml"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@many(400)
@given(files(CONFIGURATIONS))
@example(b"\0")
@example(b"a: \x1b[2J")
@example(b'"\\U00110000"')
@example(b'"\\UFFFFFFFF"')
@example(b"%YAML " + b"1" * 5_000 + b".1\n--- a")
def test_a_configuration_is_one_or_a_list_of_problems(data: bytes) -> None:
    with Stopwatch():
        try:
            assert isinstance(parse_config(data, NAME), Config)
        except ConfigError as error:
            judged(NAME, error.messages)


@many(200)
@given(data=files([*CONFIGURATIONS, *WEB_CONFIGURATIONS, *SCENARIOS]))
def test_checking_a_file_tells_its_kind_or_its_problems(data: bytes, folder: Path) -> None:
    path = folder / "checked.yaml"
    path.write_bytes(data)
    with Stopwatch():
        try:
            assert check(str(path)) in ("configuration", "web configuration", "scenario")
        except ConfigError as error:
            for message in error.messages:
                if message.startswith(f"{path}: "):
                    judged(str(path), [message])
                else:  # about a file that the configuration names
                    assert message.isprintable()


@many(300)
@example(data=b'tls_server_config: {cert_file: "\\e[2J", key_file: server.key}')
@given(data=files(WEB_CONFIGURATIONS))
def test_a_web_configuration_is_one_or_a_list_of_problems(data: bytes, folder: Path) -> None:
    path = folder / "web.yaml"
    path.write_bytes(data)
    with Stopwatch():
        try:
            guard = Guard.load(str(path))
            assert not guard.secure  # there is no certificate
        except ConfigError as error:
            judged(str(path), error.messages)


@many(100)
@given(files(SCENARIOS), st.floats(0, 1e6))
def test_a_scenario_is_one_that_can_be_lived_or_a_list_of_problems(data: bytes, now: float) -> None:
    with Stopwatch():
        try:
            scenario = load_scenario(data, name=NAME)
        except ScenarioError as error:
            judged(NAME, error.messages)
            return
        machine = Machine(scenario, epoch=0.0)
        for device in machine.devices:
            assert math.isfinite(machine.power_watts(device.key, now))
            assert machine.energy_joules(device.key, now) >= 0


@pytest.mark.parametrize("load", [load_config, Guard.load], ids=["configuration", "web configuration"])
@pytest.mark.parametrize(
    "data",
    [
        b"[" * (1 << 20),
        b"{a: " * (1 << 18),
        b"- " * (1 << 19),
        b"a: &a [x, x]\n" * 40_000,
        b'"' + b"x" * ((1 << 20) - 2) + b'"',
        b"x" * (10 << 20),
        b"\n".join(b"k%d: 1" % number for number in range(80_000)),
        b"web: {" + b", ".join(b"listen_addresses: [x]" for _ in range(40_000)) + b"}",
        b"web: {listen_addresses: [" + b"x, " * 300_000 + b"]}",
        b"a" * (1 << 19) + b": 1",
        b"#" * (1 << 20),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_a_large_file_takes_bounded_time(data: bytes, load: Callable[[str], object], tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(data)
    # The daemon stands still while it reads them.
    with Stopwatch(LARGE_SECONDS), contextlib.suppress(ConfigError):
        load(str(path))


ARGUMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "serve",
                "check-config",
                "metrics",
                "--help",
                "--version",
                "-h",
                "--",
                "-",
                "",
                "\0",
                "--provider",
                "=",
                "-x",
            ),
            *(
                "--config.file",
                "--config.file=",
                "--simulate",
                "--simulate=\udcff",
                "--web.listen-address",
                "127.0.0.1:0",
            ),
            *("--web.telemetry-path=/x", "--web.config.file=/", "--no-web.systemd-socket", "--journal.directory=\0"),
            *(
                "--log.level",
                "debug",
                "--log.format",
                "simulated",
                "/dev/null",
                "/nonexistent",
                "--prov=amd",
                "é\x1b[2J",
            ),
            *("--config.file=/proc/self/mem", "--web.listen-address=[::1", "--log.level=\n", "9" * 5_000),
        ]
    )
    | st.text(max_size=10),
    max_size=6,
)


@many(300)
@given(ARGUMENTS)
def test_any_command_line_is_done_or_refused_in_lines(arguments: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    # The last one is wrong, so that no daemon starts.
    given_ = [*arguments, "--log.level=loud"]
    with Stopwatch(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(given_)
        except SystemExit as ended:
            code = ended.code  # type: ignore[assignment] -- argparse gives a number
    assert code in (0, 2)
    assert "Traceback" not in err.getvalue()
    assert code == 0 or err.getvalue().strip()
