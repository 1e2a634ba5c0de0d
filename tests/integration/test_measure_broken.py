"""What ends or breaks a measurement: files stay readable, and no joules are called valid that may not be."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.measure.samples import read_samples
from tests.integration.daemon import ROOT
from tests.integration.measuring import SECONDS, SQUARE, Bench, children, kill, reasons, within_its_bounds, worker_of

TALLY = """
import signal, sys, time
def got(number, frame):
    print(f"got {number}", flush=True)
    if number != signal.SIGUSR1:
        sys.exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, got)
open(sys.argv[1], "w").close()
while True:
    time.sleep(1)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@contextmanager
def in_the_middle(bench: Bench, *options: str, seconds: float = 3.0) -> "Iterator[subprocess.Popen[bytes]]":
    """Measure a sleep of so many seconds; go on when it has been under way for one."""
    sign = bench.folder / "sign"
    script = f'touch "$0"; exec sleep {seconds}'
    with bench.start(*options, "--", "sh", "-c", script, str(sign)) as process:
        try:
            bench.until_running(process, sign)
            time.sleep(1.0)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def behind(bench: Bench, prefix: list[str], *options: str, output: bool = True) -> "subprocess.CompletedProcess[bytes]":
    """Measure behind another command."""
    command = bench.command(*options)
    if not output:
        at = command.index("--output")
        del command[at : at + 2]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*prefix, *command],
        cwd=bench.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_what_was_measured_until_then_is_valid(
    bench: Bench, number: signal.Signals
) -> None:
    with in_the_middle(bench, "--repeat", "3", seconds=60) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (128 + number, b"", b"")
    (run,) = bench.report().runs
    assert run.exit_status == 128 + number
    window = bench.window()
    assert window.power_valid, window.reasons
    assert window.seconds is not None
    assert 1.0 <= window.seconds < 10
    assert within_its_bounds(bench, window)


def test_signals_are_the_commands_to_handle(bench: Bench) -> None:
    sign = bench.folder / "sign"
    with bench.start("--", "python3", "-c", TALLY, str(sign)) as process:
        bench.until_running(process, sign)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None
        assert process.stdout.readline() == b"got 10\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (7, b"got 15\n", b"")
    assert bench.report().power_valid


def test_a_signal_before_the_command_runs_ends_it_at_once(bench: Bench) -> None:
    sign = bench.folder / "sign"
    with bench.start("--idle-baseline", "60", "--", "touch", str(sign)) as process:
        bench.until_running(process, bench.out / "identity.json")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
    assert not sign.exists()
    assert not bench.out.exists(), "nothing was measured"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment_of_the_start_is_no_success(tmp_path: Path, number: signal.Signals) -> None:
    for delay in (0.03, 0.06, 0.1, 0.15, 0.25, 0.4, 0.8):
        (tmp_path / str(delay)).mkdir()
        bench = Bench(tmp_path / str(delay))
        with bench.start("--", "sleep", "60") as process:
            time.sleep(delay)
            process.send_signal(number)
            assert process.wait(SECONDS) in (-number, 128 + number)
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
            report = bench.out / "energy.json"
            assert report.exists() or not bench.out.exists()


def test_what_is_to_be_ignored_is_ignored_by_the_command_too(bench: Bench) -> None:
    script = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    done = behind(bench, ["nohup"], "--", "python3", "-c", script)
    assert (done.returncode, done.stdout) == (0, b"True\n")


def test_a_crash_of_the_command_leaves_its_joules(bench: Bench) -> None:
    done = bench.run("--", "sh", "-c", "sleep 1; kill -SEGV $$")
    assert done.returncode == 128 + signal.SIGSEGV
    window = bench.window()
    assert window.power_valid, window.reasons
    assert within_its_bounds(bench, window)


def test_a_killed_worker_is_in_the_verdict_of_the_run_and_of_its_log(bench: Bench) -> None:
    with in_the_middle(bench) as process:
        kill(worker_of(process.pid))
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, b""), "the command did not notice"
    assert err.startswith(b"gpu-exporter: the power data are not valid\ngpu-exporter: command: ")
    assert "sampler" in reasons(bench.window())
    assert not bench.samples().truncated
    later = bench.run("--from-log", str(bench.out / "samples.csv"))
    assert later.returncode == 1
    assert b"POWER NOT VALID" in later.stdout
    assert b"not valid (sampler)" in later.stdout


def test_a_stopped_worker_leaves_a_gap(bench: Bench) -> None:
    with in_the_middle(bench, seconds=4) as process:
        worker = worker_of(process.pid)
        kill(worker, signal.SIGSTOP)
        time.sleep(1.5)
        kill(worker, signal.SIGCONT)
        process.communicate(timeout=SECONDS)
    assert reasons(bench.window()) >= {"gap"}


def test_samples_of_a_killed_measurement_are_whole_and_judged_by_where_they_end(bench: Bench) -> None:
    with in_the_middle(bench, seconds=60) as process:
        worker = worker_of(process.pid)
        (command,) = [child for child in children(process.pid) if child != worker]
        time.sleep(1.0)
        process.kill()
        ended = time.time()
        try:
            process.wait(10)
            assert Path(f"/proc/{command}/cmdline").read_bytes(), "the command goes on"
            gone_by = time.monotonic() + 10
            while Path(f"/proc/{worker}").exists() and time.monotonic() < gone_by:
                time.sleep(0.01)
            assert not Path(f"/proc/{worker}").exists(), "the worker does not"
        finally:
            kill(command)
    assert sorted(path.name for path in bench.out.iterdir()) == ["identity.json", "marks.txt", "samples.csv"]
    log = str(bench.out / "samples.csv")
    whole = bench.run("--from-log", log)
    assert whole.returncode == 0, whole
    assert b"power valid" in whole.stdout
    beyond = bench.run("--from-log", log, "--end", str(ended + 1))
    assert beyond.returncode == 1
    assert b"not valid (edge_end)" in beyond.stdout
    content = (bench.out / "samples.csv").read_bytes()
    (bench.folder / "cut.csv").write_bytes(content[:-7])
    assert read_samples(content[:-7]).truncated
    (bench.folder / "identity.json").write_bytes((bench.out / "identity.json").read_bytes())
    assert bench.run("--from-log", str(bench.folder / "cut.csv")).returncode in (0, 1)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("{kind: crash, from_seconds: %s, to_seconds: %s}", {"sampler"}),
        ("{kind: hang, from_seconds: %s, to_seconds: %s}", {"gap"}),
        ("{kind: lost, from_seconds: %s}", {"lost", "gpus_changed"}),
        ("{kind: removed, from_seconds: %s}", {"lost", "gpus_changed"}),
    ],
    ids=["crash", "hang", "lost", "removed"],
)
def test_a_gpu_that_breaks_in_the_window_makes_it_invalid(tmp_path: Path, fault: str, found: set[str]) -> None:
    bench = Bench(tmp_path)
    # The start of workers takes a moment, and the window lasts for six seconds: the fault lies within.
    begin = bench.now + 5
    times = (begin, begin + 1.5)[: fault.count("%s")]
    bench.write(
        f"- {{model: H100-SXM, load: {SQUARE}}}\n- {{model: H100-SXM, load: {SQUARE}, faults: [{fault % times}]}}"
    )
    # The command ends in the fault's third second, whenever it began.
    script = 'sleep "$(python3 -c "import sys, time; print(max(2.0, float(sys.argv[1]) - time.monotonic()))" "$0")"'
    done = bench.run("--", "sh", "-c", script, str(bench.epoch + begin + 3))
    assert done.returncode == 0
    window = bench.window()
    assert not window.power_valid
    assert reasons(window) >= found, window.reasons
    assert bench.samples().points


def test_a_gpu_that_was_reset_in_the_window_makes_it_invalid(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    events = f"[{{kind: reset, from_seconds: {bench.now + 5}}}]"
    bench.write(f"- {{model: H100-SXM, load: {SQUARE}, accumulator: {{events: {events}}}}}")
    script = 'sleep "$(python3 -c "import sys, time; print(max(2.0, float(sys.argv[1]) - time.monotonic()))" "$0")"'
    bench.run("--", "sh", "-c", script, str(bench.epoch + bench.now + 7))
    assert reasons(bench.window()) == {"reset"}


def test_a_command_that_cannot_be_run_is_told_with_the_status_of_a_shell(bench: Bench) -> None:
    missing = bench.run("--", "no-such-command-of-mine", "--help")
    assert missing.returncode == 127
    assert missing.stderr == b"gpu-exporter: cannot run no-such-command-of-mine: No such file or directory\n"
    assert not bench.out.exists()
    (bench.folder / "text").write_text("no program")
    unfit = bench.run("--", str(bench.folder / "text"))
    assert unfit.returncode == 126
    assert b"Permission denied" in unfit.stderr


def test_a_measurement_is_not_written_over(bench: Bench) -> None:
    assert bench.run("--", "true").returncode == 0
    content = {path.name: path.read_bytes() for path in bench.out.iterdir()}
    again = bench.run("--", "touch", str(bench.folder / "ran"))
    assert again.returncode == 125
    assert b"there is a measurement already (samples.csv)" in again.stderr
    assert not (bench.folder / "ran").exists()
    assert {path.name: path.read_bytes() for path in bench.out.iterdir()} == content


def test_a_directory_without_a_measurement_is_taken(bench: Bench) -> None:
    bench.out.mkdir()
    (bench.out / "mine.txt").write_text("kept")
    assert bench.run("--", "true").returncode == 0
    assert (bench.out / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("place", ["scenario.yaml", "scenario.yaml/below", "/proc/nothing", "/dev/full/x"])
def test_a_directory_that_cannot_be_written_is_told_before_anything_runs(bench: Bench, place: str) -> None:
    done = bench.run("--output", place, "--", "touch", str(bench.folder / "ran"))
    assert done.returncode == 125
    assert done.stderr.startswith(b"gpu-exporter: " + place.encode()), done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (bench.folder / "ran").exists()


def test_results_go_to_a_new_directory_by_default(bench: Bench) -> None:
    for count in (1, 2):
        done = behind(bench, [], "--", "true", output=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert len(list(bench.folder.glob("gpu-exporter-measure-*/energy.json"))) == count


def test_a_disk_that_is_full_costs_rows_and_not_the_command(bench: Bench) -> None:
    """A limit on the size of files stands in for the disk."""
    limited = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash"]
    done = behind(bench, limited, "--interval", "0.05", "--", "sh", "-c", "sleep 3; exit 6")
    assert (done.returncode, done.stderr) == (6, b"")
    assert bench.window().power_valid, bench.window().reasons
    assert "samples.csv does not hold every reading: File too large." in bench.report().notes
    samples = bench.samples()
    assert samples.points
    assert samples.truncated


def test_a_disk_that_takes_no_results_is_told(bench: Bench) -> None:
    # 4 KiB: the page that a worker shares with us counts as a file of that size.
    limited = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash"]
    bench.write("- {model: H100-SXM, count: 3}")
    done = behind(bench, limited, "--", "sleep", "0.2")
    assert done.returncode == 1
    assert done.stderr.endswith(b"energy.json: File too large\n"), done.stderr
    assert not (bench.out / "energy.json").exists()
    assert bench.samples().points


def test_what_is_closed_or_ignored_from_outside_mixes_nothing_up(bench: Bench) -> None:
    """Without standard output and error the next files that are opened would take their numbers."""
    closed = ["sh", "-c", 'trap "" CHLD; exec "$@" >&- 2>&-', "sh"]
    script = "echo 5 tokens; echo oops >&2; exit 7"
    done = behind(bench, closed, "--tokens-from", "([0-9]+) tokens", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"")
    assert bench.window().output_tokens == 5
    assert not bench.samples().truncated
    assert b"oops" not in b"".join(path.read_bytes() for path in bench.out.glob("*.csv"))


@pytest.mark.parametrize(
    ("devices", "reason"),
    [("[]", "no device was found"), ("[]\ndriver_loaded: 0", "the simulated driver is not loaded")],
)
def test_without_a_gpu_nothing_is_run_and_the_reason_is_told(bench: Bench, devices: str, reason: str) -> None:
    bench.scenario.write_text(f"devices: {devices}\n")
    done = bench.run("--", "touch", str(bench.folder / "ran"))
    assert done.returncode == 125
    assert done.stderr == f"gpu-exporter: there is no GPU to measure: simulated: {reason}\n".encode()
    assert not (bench.folder / "ran").exists()
    assert not bench.out.exists()
