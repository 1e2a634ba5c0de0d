"""`gpu-exporter measure` while all goes well: joules, files, what is shown, and what the command does not notice."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon
from tests.integration.measuring import SECONDS, Bench, reasons, within_its_bounds
from tests.native.plan import standin_environment, write_plan


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_joules_of_the_window_are_as_near_to_the_truth_as_the_result_says(bench: Bench) -> None:
    done = bench.run("--tokens", "1000", "--queries", "8", "--", "sleep", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    report, window = bench.report(), bench.window()
    assert report.power_valid, window.reasons
    assert report.command == ("sleep", "3")
    assert window.seconds == pytest.approx(3.0, abs=0.5)
    assert within_its_bounds(bench, window)
    assert window.joules is not None
    assert window.joules_per_output_token == pytest.approx(window.joules / 1000)
    assert window.joules_per_query == pytest.approx(window.joules / 8)
    assert [gpu.label for gpu in report.gpus] == ["sim0", "sim1"]
    identity = json.loads((bench.out / "identity.json").read_bytes())
    assert identity["gpus"] == identity["gpus_at_end"]
    assert identity["gpus"][0]["power_window_seconds"] == 1.0
    (run,) = report.runs
    assert run.counters_at_start is not None
    assert run.counters_at_end is not None
    for key, joules in run.counters_at_start.joules.items():
        at_end = run.counters_at_end.joules[key]
        assert joules is not None
        assert at_end is not None
        assert at_end > joules
    assert sorted(path.name for path in bench.out.iterdir()) == ["energy.json", "identity.json", "samples.csv"]
    assert not bench.samples().truncated


def test_the_command_has_our_input_output_error_and_environment_and_we_have_its_status(bench: Bench) -> None:
    script = 'cat; printf "%s\\377" "$MINE"; printf oops >&2; exit 3'
    done = bench.run("--", "sh", "-c", script, input=b"from outside\n", env={"MINE": "set"})
    assert (done.returncode, done.stdout, done.stderr) == (3, b"from outside\nset\xff", b"oops")
    assert bench.report().runs[0].exit_status == 3
    assert bench.report().power_valid, "joules are right, whatever became of the command"


def test_windows_that_the_command_marks_leave_the_rest_out(bench: Bench) -> None:
    script = """
        mark() { echo "$*" >> "$GPU_EXPORTER_MARKS"; }
        sleep 1; mark start work; sleep 2; mark end work
        mark tokens 500; mark nonsense; printf 'end half' >> "$GPU_EXPORTER_MARKS"; sleep 1
    """
    done = bench.run("--queries", "4", "--", "sh", "-c", script)
    assert done.returncode == 0
    whole, work = bench.window(), bench.window("work")
    assert bench.report().power_valid, [*whole.reasons, *work.reasons]
    assert work.seconds == pytest.approx(2.0, abs=0.5)
    assert whole.seconds is not None
    assert whole.seconds > 3.5
    assert within_its_bounds(bench, work)
    assert (work.output_tokens, work.queries) == (500, 4)
    notes = bench.report().notes
    assert len(notes) == 2, notes
    assert "nonsense" in notes[0]
    assert "no end of line" in notes[1]
    assert "start work" in (bench.out / "marks.txt").read_text()


def test_a_window_that_is_never_ended_is_not_valid_and_the_others_are(bench: Bench) -> None:
    bench.run("--", "sh", "-c", 'echo start lost >> "$GPU_EXPORTER_MARKS"; sleep 1')
    assert bench.window().power_valid
    assert reasons(bench.window("lost")) == {"window"}
    assert not bench.report().power_valid


def test_runs_are_repeated_and_averaged_above_an_idle_baseline(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "- {model: MI300X, load: {pattern: constant, watts: 400}}")
    script = 'printf 1 >> "$0"; sleep 1'
    tally = tmp_path / "tally"
    done = bench.run(
        "--repeat", "3", "--idle-baseline", "1", "--tokens", "100", "--markdown", "--", "sh", "-c", script, str(tally)
    )
    assert done.returncode == 0
    assert tally.read_text() == "111"
    report = bench.report()
    assert [run.number for run in report.runs] == [1, 2, 3]
    assert report.power_valid, report.runs
    (summary,) = report.summary
    assert (summary.runs, summary.valid) == (3, 3)
    assert summary.watts_per_gpu is not None
    assert summary.watts_per_gpu.mean == pytest.approx(400, rel=0.01)
    assert summary.watts_per_gpu.variation_ratio == pytest.approx(0, abs=0.01)
    assert summary.joules_above_idle is not None
    assert summary.joules_above_idle.mean == pytest.approx(0, abs=10), "it was no less busy before"
    table = (bench.out / "energy.md").read_text()
    assert table.startswith("| window |")
    assert "3 of 3" in table


def test_a_run_that_fails_is_the_last_one(bench: Bench) -> None:
    assert bench.run("--repeat", "3", "--", "sh", "-c", "exit 9").returncode == 9
    assert [run.exit_status for run in bench.report().runs] == [9]


def test_a_run_that_fails_behind_others_spoils_no_mean(bench: Bench) -> None:
    script = 'test -e "$0" && exit 3; touch "$0"; sleep 1'
    done = bench.run("--repeat", "3", "--tokens", "100", "--", "sh", "-c", script, str(bench.folder / "once"))
    assert done.returncode == 3
    report = bench.report()
    assert [run.exit_status for run in report.runs] == [0, 3]
    (summary,) = report.summary
    assert (summary.runs, summary.valid, summary.failed) == (2, 1, 1)
    assert summary.joules_per_output_token is not None
    assert summary.joules_per_output_token.mean == report.runs[0].windows[0].joules_per_output_token


def test_tokens_are_read_out_of_output_that_passes_unchanged_and_at_once(bench: Bench) -> None:
    script = "import sys, time\nfor i in (1, 2):\n    print(f'got {i},000 tokens', flush=True)\n    time.sleep(1)\n"
    script += "sys.stderr.buffer.write(b'\\xffgot 5 tokens'); sys.exit(4)"
    with bench.start("--tokens-from", r"got ([\d,]+) tokens", "--", "python3", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"got 1,000 tokens\n"
        assert process.poll() is None, "the first line came before the end"
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (4, b"got 2,000 tokens\n", b"\xffgot 5 tokens")
    window = bench.window()
    assert window.power_valid, window.reasons
    assert window.output_tokens == 3005


def test_a_pattern_that_matches_nothing_is_told(bench: Bench) -> None:
    bench.run("--tokens-from", "tokens: ([0-9]+)", "--", "echo", "none")
    assert bench.window().output_tokens is None
    assert any("--tokens-from" in note for note in bench.report().notes)


def test_a_pattern_that_takes_for_ever_costs_the_tokens_and_not_the_joules(bench: Bench) -> None:
    done = bench.run("--tokens-from", r"(\d+)*x(\d+)", "--", "echo", "1" * 40)
    assert (done.returncode, done.stdout) == (0, b"1" * 40 + b"\n")
    (note,) = bench.report().notes
    assert "--tokens-from took more than 2 s" in note
    assert bench.window().power_valid
    assert bench.window().output_tokens is None


def test_the_gpus_that_are_named_are_measured_and_no_others(bench: Bench) -> None:
    bench.run("--gpus", "sim1", "--", "sleep", "0.5")
    assert [gpu.name for gpu in bench.window().gpus] == ["sim1"]
    assert len({point.gpu for point in bench.samples().points}) == 1
    (bench.folder / "other").mkdir()
    other = Bench(bench.folder / "other")
    done = other.run("--gpus", "sim7", "--", "touch", "ran")
    assert (done.returncode, done.stderr) == (
        125,
        b"gpu-exporter: --gpus: 'sim7' is no GPU; there are sim0, sim1\n",
    )
    assert sorted(path.name for path in other.folder.iterdir()) == ["scenario.yaml"], "nothing was run or left"


def test_it_measures_beside_a_running_daemon_and_leaves_it_alone(
    bench: Bench, start_daemon: Callable[..., Daemon]
) -> None:
    journal = bench.folder / "journal"
    daemon = start_daemon("--simulate", str(bench.scenario), "--journal.directory", str(journal))
    before = daemon.scrape_until(lambda page: len(page.all("gpu_energy_joules_total")) == 2)
    done = bench.run("--", "sleep", "2", env={"RUNTIME_DIRECTORY": str(journal)})
    assert (done.returncode, done.stderr) == (0, b"")
    assert bench.report().power_valid, bench.window().reasons
    after = daemon.scrape()
    for labels, joules in before.all("gpu_energy_joules_total"):
        assert after.value("gpu_energy_joules_total", **labels) > joules
    assert after.all("gpu_exporter_worker_restarts_total") == before.all("gpu_exporter_worker_restarts_total")
    assert daemon.process.poll() is None


def test_it_measures_through_nvml(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    devices = "devices: [{model: A100-SXM, count: 8, load: {pattern: constant, watts: 300}}]"
    write_plan(tmp_path / "plan", Machine(load_scenario(devices), time.monotonic() - 1000))
    done = bench.run(
        "--provider", "nvidia", "--interval", "0.1", "--", "sleep", "2", env=standin_environment(tmp_path / "plan")
    )
    assert (done.returncode, done.stderr) == (0, b"")
    window = bench.window()
    assert window.power_valid, window.reasons
    assert window.watts_per_gpu == pytest.approx(300, rel=0.01)
    assert [gpu.name for gpu in window.gpus] == [f"nvidia{number}" for number in range(8)]
    assert all(gpu.readings >= 0.9 * gpu.readings_expected for gpu in window.gpus)


def test_a_log_of_ours_is_measured_after_the_fact(bench: Bench) -> None:
    bench.run("--", "sleep", "2")
    window = bench.window()
    edges = ("--start", str(window.start_timestamp), "--end", str(window.end_timestamp))
    later = bench.folder / "later"
    done = bench.run("--from-log", str(bench.out / "samples.csv"), *edges, "--output", str(later))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"window, 2." in done.stdout
    assert b"power valid" in done.stdout
    again = json.loads((later / "energy.json").read_bytes())["runs"][0]["windows"][0]
    assert again["joules"] == pytest.approx(window.joules, rel=1e-3)
    table = bench.run("--from-log", str(bench.out / "samples.csv"), "--gpus", bench.report().gpus[0].gpu, "--markdown")
    assert table.returncode == 0, table
    assert table.stdout.startswith(b"| window |")


def test_a_long_interval_and_few_readings_are_still_bracketed(bench: Bench) -> None:
    bench.run("--interval", "1", "--", "sleep", "2.5")
    window = bench.window()
    assert window.power_valid, window.reasons
    assert within_its_bounds(bench, window)


def test_output_without_end_passes_without_being_held(bench: Bench) -> None:
    megabytes = 10
    script = f"import sys\nfor _ in range({megabytes}): sys.stdout.write('x' * 1_000_000)\nprint('7 tokens')"
    size, highest = 0, 0.0
    with bench.start("--tokens-from", r"(\d+) tokens", "--", "python3", "-c", script) as process:
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), 1 << 20):
            size += len(data)
            status = Path(f"/proc/{process.pid}/status").read_text()
            if "VmRSS:" in status:
                highest = max(highest, int(status.partition("VmRSS:")[2].split()[0]) / 1024)
        assert process.wait(SECONDS) == 0
    assert size == megabytes * 1_000_000 + len("7 tokens\n")
    assert highest < 80
    assert bench.window().output_tokens == 7


def test_a_reader_that_goes_away_ends_the_command_as_without_us(bench: Bench) -> None:
    script = "import signal, sys; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: sys.stdout.write('y\\n')"
    with bench.start("--tokens-from", "(z)", "--", "python3", "-c", script) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS) == 128 + 13
    assert bench.window().power_valid


def test_nothing_is_written_anywhere_else(bench: Bench) -> None:
    before = {path.name for path in bench.folder.iterdir()}
    bench.run("--", "true")
    assert {path.name for path in bench.folder.iterdir()} - before == {"out"}
