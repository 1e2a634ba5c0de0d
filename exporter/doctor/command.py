"""Looks at the host, says what it found, and gives the verdict as exit code."""

import asyncio
import os

from exporter import logs
from exporter.config import Config
from exporter.doctor.findings import findings, severity
from exporter.doctor.look import look
from exporter.doctor.page import page
from exporter.doctor.surroundings import facts


def doctor(config: Config) -> tuple[str, int]:
    """Return the report and the exit code: 0 fine, 1 degraded, 2 unusable."""
    # What the daemon would log of its workers is in the report.
    logs.configure("error", config.log.format)
    examination = asyncio.run(look(config))
    known = facts(config, os.environ)
    found = findings(examination, known)
    worst = severity(found)
    return page(examination, known, found, worst), int(worst)
