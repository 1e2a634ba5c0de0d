"""Shows at the end of a run the tables that tests recorded by `record_property("table", text)`, in any process."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, text in report.user_properties:
                if name == "table":
                    terminalreporter.section(report.head_line or report.nodeid)
                    terminalreporter.write_line(str(text))
