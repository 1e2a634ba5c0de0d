"""How exact are the joules, ours and those of others, and how exact is what Prometheus makes of them?

Run as `python -m tests.benchmarks.energy_accuracy`. Exits with 1 when a budget is not met, when another way of counting
is better without a reason, or when promtool does not agree.
"""

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.energy import promql, report, yardstick


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    broken: list[str] = []
    rows, windows = [], []
    everything = options.page is not None or options.plots is not None
    if everything or not options.promql:
        rows = yardstick.rows(yardstick.QUICK_PHASES if options.quick else yardstick.PHASES)
        broken += report.failures(rows)
        print(report.yardstick(rows))
    if everything or options.promql:
        windows, bills, lives = list(promql.windows()), list(promql.bills()), list(promql.lives())
        print(report.promql(windows, bills, lives))
        broken += _disagreement(options.promtool)
        if options.page is not None:
            options.page.write_text(report.page(rows, windows, bills, lives))
    if options.plots is not None:
        from tests.benchmarks.energy import plots  # noqa: PLC0415 -- matplotlib is not needed for anything else

        for path in plots.draw(rows, windows, options.plots):
            print(f"wrote {path}")
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return 1 if broken else 0


def disagreement(promtool: str) -> str:
    """Return what promtool says against the simulated `increase`; empty: it agrees."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "increase.yml"
        path.write_text(json.dumps(promql.rule_tests()))  # JSON is YAML
        said = subprocess.run(
            [promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=60, check=False
        )
    return "" if said.returncode == 0 else said.stdout + said.stderr


def _disagreement(promtool: str | None) -> list[str]:
    if promtool is None:
        print("increase: not compared with promtool, which is not there (--promtool PATH)")
        return []
    if said := disagreement(promtool):
        return [f"increase is not what {promtool} says:\n{said}"]
    print(f"increase: promtool agrees on {len(promql.rule_tests()['tests'])} windows")
    return []


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.energy_accuracy", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer phases of sensors that are read at 10 Hz; 20 s at most"
    )
    parser.add_argument("--promql", action="store_true", help="measure increase() over an exact counter instead")
    parser.add_argument(
        "--promtool", default=shutil.which("promtool"), metavar="PATH", help="checks the simulated increase()"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="do both and write the results as Markdown")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="do both and draw them; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.quick and (options.page or options.plots):
        parser.error("--quick has too few phases for a page or plots")
    if options.promtool is not None and shutil.which(options.promtool) is None:
        parser.error(f"--promtool {options.promtool}: no such program")
    if options.page is not None and not options.page.absolute().parent.is_dir():
        parser.error(f"--page {options.page}: no such directory")
    if options.plots is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plots needs matplotlib: pip install matplotlib")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
