"""What is refused at the command line, before anything is opened or run."""

import re
from pathlib import Path

import pytest

from exporter.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--interval", "0.01", "--", "true"], "--interval: expected a number from 0.05 to 60, got '0.01'"),
        (["--interval", "nan", "--", "true"], "--interval: expected a number from 0.05 to 60, got 'nan'"),
        (["--repeat", "0", "--", "true"], "--repeat: expected a whole number from 1 to 1000, got '0'"),
        (["--repeat", "1.5", "--", "true"], "--repeat: expected a whole number"),
        (["--repeat", "9" * 5000, "--", "true"], "--repeat: expected a whole number"),
        (["--idle-baseline", "-1", "--", "true"], "--idle-baseline: expected a number from 0 to 3600"),
        (["--tokens", "x", "--", "true"], "--tokens: expected a number"),
        (["--tokens-from", "(", "--", "true"], "--tokens-from: '(' is no regular expression: missing )"),
        (["--tokens", "1", "--tokens-from", "x", "--", "true"], "not allowed with argument"),
        (["true"], "unrecognized arguments: true"),
        (["--no-such-option", "--", "true"], "unrecognized arguments: --no-such-option"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["measure", *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the command behind --"),
        (["--"], "name the command behind --"),
        (["--start", "1", "--", "true"], "--start goes with --from-log"),
        (["--from-log", "x.csv", "--", "true"], "give one of both"),
        (["--from-log", "x.csv", "--repeat", "2"], "--repeat does not go with --from-log"),
        (["--from-log", "x.csv", "--simulate", "x.yaml"], "--simulate does not go with --from-log"),
        (["--from-log", "no-such.csv"], "no-such.csv: No such file or directory"),
        (["--provider", "nope", "--", "true"], "--provider: no provider has the name"),
        (["--simulate", "no-such.yaml", "--", "true"], "no-such.yaml: No such file or directory"),
        (["--config.file", "no-such.yaml", "--", "true"], "no-such.yaml: No such file or directory"),
    ],
)
def test_what_does_not_go_together_or_is_not_there_is_told(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["measure", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nothing known", "the log has no head that is known"),
        (b"# gpu-exporter samples 1\nunix\n", "line 2"),
        (b"# gpu-exporter samples 9\nx\n", "line 1"),
        (b"timestamp, power.draw [W]\n", "no power reading"),
        (b"timestamp, power.draw [W]\n2026/11/30 12:00:00.000, [N/A]\n", "the first of its cells is '[N/A]'"),
        (b"timestamp, power.draw [W]\nNov 30 12:00:00, 100.00 W\n", "1 row of the log has no time"),
        (
            b"timestamp, power.draw [W]\n2026/11/30 12:00:00.000, 100,00 W\n",
            "1 line of the log is no row and was left out, it says: 2026",
        ),
        (b"\x1f\x8b\x08\x00", "compressed"),
    ],
)
def test_a_log_that_gives_no_joules_is_refused(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    assert main(["measure", "--from-log", str(tmp_path / "log.csv")]) == 2
    assert said in capsys.readouterr().err


NVIDIA = """timestamp, index, uuid, power.draw.average [W]
2026/11/30 12:00:00.000, 0, GPU-1, 100.00 W
2026/11/30 12:00:01.000, 0, GPU-1, 200.00 W
2026/11/30 12:00:02.000, 0, GPU-1, 300.00 W
2026/11/30 12:00:03.000, 0, GPU-1, 300.00 W
2026/11/30 12:00:04.000, 0, GPU-1, 200.00 W
2026/11/30 12:00:05.000, 0, GPU-1, 100.00 W
"""


@pytest.mark.parametrize(
    ("zone", "start", "end"),
    [
        ("UTC", "2026-11-30T12:00:01", "2026-11-30T12:00:04Z"),
        ("Europe/Berlin", "2026-11-30 12:00:01", "2026-11-30T11:00:04Z"),
        ("America/New_York", "1796058001", "2026/11/30 12:00:04"),
    ],
)
def test_times_without_a_zone_are_those_of_this_host(
    zone: str,
    start: str,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TZ", zone)
    (tmp_path / "log.csv").write_text(NVIDIA)
    assert main(["measure", "--from-log", str(tmp_path / "log.csv"), "--start", start, "--end", end]) == 0
    assert "window, 3.00 s: power valid" in capsys.readouterr().out


def test_a_gpu_that_has_power_for_a_part_of_the_log_alone_does_not_shorten_the_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    head = "timestamp, index, power.draw.average [W], utilization.gpu [%]"
    both = [f"2026/11/30 12:00:{t:02d}.00{i}, {i}, {300 + t} W, {90 + t % 3} %" for t in range(60) for i in (0, 1)]

    def says(rows: list[str]) -> str:
        log.write_text("".join(f"{line}\n" for line in (head, *rows)))
        main(["measure", "--from-log", str(log)])
        return capsys.readouterr().out

    def gone(since: int, until: int) -> list[str]:
        return [row for n, row in enumerate(both) if not (n % 2 and since <= n // 2 < until)]

    assert "power valid" in says(both)
    assert "not valid (edge_end)" in says(gone(30, 60)), "lost in the middle"
    assert "not valid (edge_start)" in says(gone(0, 30))
    mute = [row.replace(f"{300 + n // 2} W", "[N/A]") if n < 60 else row for n, row in enumerate(both)]
    assert "not valid (edge_start)" in says(mute), "of no GPU was there power in the first half"
    swapped = [row.replace(", 1, ", ", 7, ") if n >= 60 else row for n, row in enumerate(both)]
    assert {"edge_start", "edge_end"} <= set(re.findall(r"not valid \((\w+)\)", says(swapped)))


def test_all_of_a_log_whose_times_go_back_is_told_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A summer that ended within it: 02:59:59 was followed by 02:00:00."""
    times = [f"02:{minute:02d}:{second:02d}" for minute in (59, 0) for second in range(60)]
    rows = [f"2026/10/25 {time}.000, {300 + n % 7} W" for n, time in enumerate(times)]
    log = tmp_path / "log.csv"
    log.write_text("".join(f"{line}\n" for line in ("timestamp, power.draw.average [W]", *rows)))
    assert main(["measure", "--from-log", str(log)]) == 1
    assert "not valid (clock)" in capsys.readouterr().out


def test_a_log_without_end_is_read_up_to_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--from-log", "/dev/zero"]) == 2
    assert "larger than" in capsys.readouterr().err


def test_a_time_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text(NVIDIA)
    assert main(["measure", "--from-log", str(tmp_path / "log.csv"), "--start", "noon"]) == 2
    assert "'noon' is no time" in capsys.readouterr().err


def test_a_log_that_cannot_be_trusted_gives_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text(NVIDIA)
    assert main(["measure", "--from-log", str(tmp_path / "log.csv"), "--end", "2026-11-30T18:00:00"]) == 1
    assert "POWER NOT VALID" in capsys.readouterr().out
