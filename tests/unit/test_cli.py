from pathlib import Path

import pytest

from exporter import __version__
from exporter.cli import main
from exporter.metrics import METRIC_NAMES
from exporter.providers import PROVIDERS

KNOWN = ", ".join(PROVIDERS)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that argparse refuses and return what it says."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["serve", "--version"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        assert capsys.readouterr().out == f"gpu-exporter {__version__}\n"


def test_help_names_the_commands_and_the_options_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(command in said for command in ("serve", "measure", "check-config", "metrics"))
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = capsys.readouterr().out
    for option in (
        "--config.file",
        "--provider",
        "--simulate",
        "--web.listen-address",
        "--web.telemetry-path",
        "--web.config.file",
        "--web.systemd-socket",
        "--no-web.systemd-socket",
        "--log.level",
        "--log.format",
    ):
        assert option in said


def test_metrics_prints_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics"]) == 0
    said = capsys.readouterr().out
    assert [name for name in METRIC_NAMES if f"`{name}`" not in said] == []


def test_a_valid_file_is_said_to_be_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("log: {level: warn}\n")
    assert main(["check-config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid configuration\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "configuration"),
        ("{}", "configuration"),
        ("metrics:\n", "configuration"),
        ("devices: [{model: H100-SXM}]", "scenario"),
        ("faults: []\ndevices: []", "scenario"),
        ("basic_auth_users: {}", "web configuration"),
        ("http_server_config: {headers: {X-Frame-Options: deny}}", "web configuration"),
    ],
)
def test_what_a_file_was_taken_for_is_said(
    text: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert main(["check-config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid {kind}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devices: [{model: h1000}]", "devices[0].model: "),
        ("devices: [{model: H100-SXM}]\nlog: {level: info}", "devices: unknown option"),
        ("basic_auth_users: {}\nlog: {level: info}", "basic_auth_users: unknown option"),
        ("basic_auth_user: {}\nrate_limit: {}", "basic_auth_user: "),
        ("- devices", "the file: expected options by name, got a list"),
        ("divices: []", "divices: unknown option"),
    ],
)
def test_a_file_is_checked_as_what_it_was_taken_for(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert main(["check-config", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"gpu-exporter: {path}: {said}")


def test_the_web_configuration_that_is_named_is_checked_and_no_secret_of_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text("basic_auth_users: {alice: hunter2}\n")
    path = tmp_path / "c.yaml"
    path.write_text("web: {config_file: web.yaml}\n")
    for arguments in (
        ["check-config", str(path)],
        ["check-config", f"{tmp_path}/web.yaml"],
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"gpu-exporter: {tmp_path}/web.yaml: basic_auth_users")
        assert "hunter2" not in error


def test_each_mistake_in_a_file_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("log: {level: loud}\nwebb: {}\n")
    assert main(["check-config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == (
        "",
        [
            f'gpu-exporter: {path}: log.level: expected one of debug, error, info, warn, got "loud"',
            f'gpu-exporter: {path}: webb: unknown option, did you mean "web"?',
        ],
    )


def test_a_scenario_with_mistakes_is_found_by_both_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rig.yaml").write_text("devices: [{model: h1000}]\n")
    path = tmp_path / "c.yaml"
    path.write_text("simulate: rig.yaml\n")
    for arguments in (
        ["check-config", str(path)],
        ["--config.file", str(path)],
        ["--simulate", f"{tmp_path}/rig.yaml"],
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"gpu-exporter: {tmp_path}/rig.yaml: devices[0].model: ")


def test_a_scenario_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--simulate", f"{tmp_path}/none.yaml"]) == 2
    assert capsys.readouterr().err == f"gpu-exporter: {tmp_path}/none.yaml: No such file or directory\n"


def test_a_scenario_with_an_impossible_name_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text('simulate: "a\\ud800"\n')
    assert main(["check-config", str(path)]) == 2
    assert capsys.readouterr().err == f"gpu-exporter: {tmp_path}/a\\ud800: no file can have this name\n"


def test_mistakes_in_file_and_options_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("log: {level: loud}\n")
    arguments = ["--config.file", str(path), "--provider", "x", "--web.listen-address", "x", "--log.format", "xml"]
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines() == [
        f'gpu-exporter: {path}: log.level: expected one of debug, error, info, warn, got "loud"',
        f'gpu-exporter: --provider: no provider has the name "x"; there are {KNOWN}',
        'gpu-exporter: --web.listen-address: expected HOST:PORT, [IPV6]:PORT or :PORT with a port up to 65535, got "x"',
        'gpu-exporter: --log.format: expected one of json, logfmt, got "xml"',
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frob"], "invalid choice: 'frob'"),
        (["--frob"], "unrecognized arguments: --frob"),
        (["--web.listen", ":1"], "unrecognized arguments: --web.listen :1"),
        (["--provider"], "expected one argument"),
        (["check-config"], "FILE"),
        (["metrics", "x"], "unrecognized arguments: x"),
        (["serve", "serve"], "unrecognized arguments: serve"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(arguments, capsys)
