"""The yardstick as one runs it: budgets of energy are met, and the committed results are what it finds."""

import subprocess
import sys

import pytest

from tests.benchmarks.energy.traces import AVERAGE
from tests.benchmarks.energy_accuracy import disagreement, main
from tests.integration.daemon import ROOT
from tests.integration.prometheus import find

MEASURED = (ROOT / "docs" / "energy-accuracy.md").read_text()


@pytest.fixture(scope="module")
def quick() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.benchmarks.energy_accuracy", "--quick"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_all_budgets_are_met_and_ours_is_first_or_the_reason_is_told(
    quick: subprocess.CompletedProcess[str],
) -> None:
    assert (quick.returncode, quick.stderr) == (0, "")
    budgets = [line for line in quick.stdout.splitlines() if line.startswith("- ")]
    assert len(budgets) == 3
    assert all(line.endswith(": met") for line in budgets)


def test_the_committed_results_are_of_this_code(quick: subprocess.CompletedProcess[str]) -> None:
    # The short form has these rows in full.
    rows = [line for line in quick.stdout.splitlines() if line.startswith(f"| no accumulator, {AVERAGE} |")]
    assert len(rows) == 7
    stale = [row for row in rows if row not in MEASURED.splitlines()]
    assert not stale, "write them anew: python -m tests.benchmarks.energy_accuracy --page docs/energy-accuracy.md"


def test_increase_is_what_prometheus_evaluates() -> None:
    assert disagreement(find(3).promtool) == ""


def test_without_promtool_the_script_says_so() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.energy_accuracy", "--promql"]
    nowhere = {"PATH": "/nonexistent"}
    said = subprocess.run(command, cwd=ROOT, env=nowhere, capture_output=True, text=True, timeout=120, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert "not compared with promtool" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--quick", "--page", "page.md"], "too few phases"),
        (["--promtool", "/nonexistent"], "no such program"),
        (["--page", "/nonexistent/page.md"], "no such directory"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
