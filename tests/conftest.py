"""In which order tests run, and what is shown at the end: tables recorded by `record_property("table", text)`."""

import os

import pytest
from hypothesis import settings

if "CI" not in os.environ:  # where Hypothesis has a profile of its own, which has no deadline either
    settings.register_profile("any-machine", deadline=None)
    settings.load_profile("any-machine")

LONGEST = (
    *("test_soak.py", "test_fault_matrix.py", "test_prometheus.py", "test_bad_accumulators.py", "test_dashboards.py"),
    *("test_unit_boot.py", "test_image.py", "test_performance.py", "test_simulated_alerts.py"),
    *("test_workload_storm.py", "test_chart_pod.py", "test_pod_replacement.py", "test_status_page.py"),
    *("test_hardware_suite.py", "test_energy_kills.py", "test_http_fuzz.py"),
)
"""A file is run by one process: those that wait for minutes begin first, so that none is waited for at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> tuple[int, bool]:
        name = item.path.name
        return LONGEST.index(name) if name in LONGEST else len(LONGEST), "unit" in item.path.parts

    items.sort(key=rank)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, text in report.user_properties:
                if name == "table":
                    terminalreporter.section(report.head_line or report.nodeid)
                    terminalreporter.write_line(str(text))
