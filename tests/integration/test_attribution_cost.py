"""What it costs to know whose 5,000 processes on 64 partitions are, as the benchmark measures it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEARLY_LINEAR = 1.3
"""Of the exponent; it is processor time, and caches are shared with whatever else runs."""


def test_one_pass_stays_within_two_seconds_and_grows_as_the_number_of_processes_does() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.attribution", "1250", "5000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    exponent = re.search(r"growth .* first pass ([0-9.]+)", done.stdout)
    assert exponent is not None, done.stdout
    assert float(exponent[1]) < NEARLY_LINEAR
