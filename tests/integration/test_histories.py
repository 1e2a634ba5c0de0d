"""No rule and no query of a dashboard breaks off while what is said of a GPU changes.

A label of a GPU or of a workload is another one after an upgrade of the driver, a boot that numbers GPUs anew or a pod
that moves. Prometheus then has both series for five minutes where it has not seen the end of the first, as after a
restart of its own, and over the range of a query always. A join that takes one series for each GPU breaks off there.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.metrics import Kind
from tests.grafana.queries import FILES, defaults, every_target, filled, load
from tests.integration.prometheus import find
from tests.integration.test_rules import KINDS, RULES, SPECS

pytestmark = pytest.mark.integration

MINUTES = 40
CHANGED = 36
"""After so many minutes there are the series with other labels."""
SEEN = 38
TARGET = {"job": "gpu-exporter", "instance": "node-a:10042"}
IDENTITY = {"gpu", "uuid", "workload", "pid", "provider", "source"}
"""Labels by which the parts of a join are matched, and those of an exporter's own parts."""
TOKENS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total")
VALUES = {
    "state": "lost",
    "kind": "pod",
    "severity": "critical",
    "domain": "sm",
    "sensor": "gpu",
    "vendor": "nvidia",
    "reason": "hw_thermal",
    "k8s_pod": "pod-a",
    "k8s_namespace": "space-a",
}


def series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{', '.join(f'{label}={json.dumps(value)}' for label, value in labels.items())}}}"


def history(name: str, kind: Kind, before: dict[str, str], after: dict[str, str], end: str) -> Iterator[dict[str, str]]:
    """Yield a series that is there all the time, or two with different labels; `end`: of the first."""
    step = "+60" if kind is Kind.COUNTER else "+0"
    if before == after:
        yield {"series": series(name, before), "values": f"1{step}x{MINUTES}"}
        return
    yield {"series": series(name, before), "values": f"1{step}x{CHANGED} {end}"}
    yield {"series": series(name, after), "values": f"_x{CHANGED} 1{step}x{MINUTES - CHANGED}"}


def stored(changes: set[str], end: str) -> list[dict[str, str]]:
    """Return what is stored of one GPU and one workload where the values of these labels change."""
    found: list[dict[str, str]] = []
    for name, labels in SPECS.items():
        before = TARGET | {label: VALUES.get(label, f"{label}-a") for label in sorted(labels)}
        after = before | {label: f"{label}-b" for label in labels & changes}
        found += history(name, KINDS[name], before, after, end)
    for name in TOKENS:
        of_tokens = {"job": "vllm", "instance": "node-a:8000", "namespace": "space-a", "pod": "pod-a"}
        found += history(name, Kind.COUNTER, of_tokens, of_tokens, end)
    return [*found, *history("up", Kind.GAUGE, TARGET, TARGET, end)]


def queries() -> Iterator[str]:
    boards = {file.stem: load(file) for file in FILES}
    for target in every_target():
        yield filled(target.expr, {"uuid": "uuid-a", **defaults(boards[target.board])}, seconds=1800, interval=300)


def broken(path: Path, rules: list[Path], expressions: list[str], history: list[dict[str, str]]) -> list[str]:
    """Return the errors of rules and expressions, not what they find."""
    # Promtool does not get as far as expressions where a rule breaks.
    checks = [{"expr": expression, "eval_time": f"{SEEN}m"} for expression in expressions]
    test = {"interval": "1m", "input_series": history, "promql_expr_test": checks}
    files = [str(file) for file in rules]
    path.write_text(json.dumps({"rule_files": files, "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(
        [find(3).promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    said = done.stdout + done.stderr
    # What expressions find is not what is expected of them, which is nothing.
    assert ("got:" in said) if expressions else (done.returncode == 0 or " err:" in said), said
    return [line.strip() for line in said.splitlines() if " err:" in line]


@pytest.mark.parametrize("renumbered", [False, True], ids=["what is said of it", "its number"])
def test_nothing_breaks_while_labels_of_a_gpu_change(tmp_path: Path, renumbered: bool) -> None:
    labels = set().union(*SPECS.values())
    assert labels >= IDENTITY
    # A host that boots is not scraped meanwhile, which ends its series.
    found = stored({"gpu"}, "stale") if renumbered else stored(labels - IDENTITY, f"_x{MINUTES - CHANGED}")
    assert broken(tmp_path / "rules.yaml", RULES, [], found) == []
    assert broken(tmp_path / "queries.yaml", [], list(queries()), found) == []
