"""What measuring costs: `python -m tests.benchmarks.measure [SECONDS]`, at 10 Hz over pynvml and the C stand-in.

Processor time of `gpu-exporter measure` and its worker while a command runs that does nothing, on 8 GPUs, of one core.
Readings of power and accumulator make rows ten times a second; load and temperatures are read once a second.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.benchmarks.figures import processor_seconds, pss_mebibytes
from tests.integration.daemon import ROOT
from tests.integration.measuring import Bench, worker_of
from tests.native.plan import standin_environment, write_plan

SCENARIO = "devices: [{{model: {model}, count: {count}, load: {{pattern: training}}}}]"
MOST = 0.02
"""Of one core, at 10 Hz."""
_SETTLED_SECONDS = 3.0


def measure(model: str, count: int, interval: float, seconds: float) -> float:
    """Return the share of one core that parent and worker take together."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        write_plan(
            bench.folder / "plan", Machine(load_scenario(SCENARIO.format(model=model, count=count)), bench.epoch)
        )
        sign = bench.folder / "sign"
        sleep = f'touch "$0"; exec sleep {seconds + 2 * _SETTLED_SECONDS}'
        process = subprocess.Popen(
            bench.command("--provider", "nvidia", "--interval", str(interval), "--", "sh", "-c", sleep, str(sign)),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **standin_environment(bench.folder / "plan")},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        bench.until_running(process, sign)
        time.sleep(_SETTLED_SECONDS)
        pids = (process.pid, worker_of(process.pid))
        began, before = time.monotonic(), [processor_seconds(pid) for pid in pids]
        time.sleep(seconds)
        elapsed = time.monotonic() - began
        shares = [(processor_seconds(pid) - was) / elapsed for pid, was in zip(pids, before, strict=True)]
        memory = [pss_mebibytes(pid) for pid in pids]
        assert process.wait() == 0
        window = bench.window()
        assert window.power_valid, window.reasons
        seen = sum(gpu.readings for gpu in window.gpus) / sum(gpu.readings_expected for gpu in window.gpus)
    print(f"{count} x {model}, every {interval:g} s: {seen:.1%} of the readings")
    print(f"  processor, of one core: parent {shares[0]:.2%}, worker {shares[1]:.2%}, together {sum(shares):.2%}")
    print(f"  memory: parent {memory[0]:.1f} MiB, worker {memory[1]:.1f} MiB")
    return sum(shares)


def main() -> int:
    """Return 1 when it takes more at 10 Hz than it may."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    shares = [measure(model, 8, 0.1, seconds) for model in ("A100-SXM", "H100-SXM")]
    measure("H100-SXM", 8, 1.0, seconds)
    return int(max(shares) > MOST)


if __name__ == "__main__":
    sys.exit(main())
