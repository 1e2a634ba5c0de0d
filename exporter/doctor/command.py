"""Looks at the host, says what it found, and gives the verdict as exit code."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from exporter import __version__, logs
from exporter.config import Config
from exporter.doctor.findings import Finding, findings, severity
from exporter.doctor.look import Broken, Examination, look
from exporter.doctor.page import energy, page
from exporter.doctor.readings import rows
from exporter.doctor.recording import RecordingError, recorded
from exporter.doctor.surroundings import Fact, facts


def doctor(config: Config, *, as_json: bool = False) -> tuple[str, int]:
    """Return the report and the exit code: 0 fine, 1 degraded, 2 unusable."""
    # What the daemon would log of its workers is in the report.
    logs.configure("error", config.log.format)
    examination = asyncio.run(look(config))
    known = facts(config, os.environ)
    found = findings(examination, known)
    worst = severity(found)
    if not as_json:
        return page(examination, known, found, worst), int(worst)
    document = {**_document(examination, known, found), "verdict": worst.name.lower(), **_captures(examination, config)}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n", int(worst)


def _document(examination: Examination, known: Sequence[Fact], found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "version": __version__,
        "host": {fact.name: fact.value for fact in known},
        "providers": {
            snapshot.provider: {
                "up": snapshot.up,
                "reason": snapshot.reason,
                "library_version": snapshot.library_version,
                "devices_expected": snapshot.devices_expected,
                "devices": [
                    {
                        "gpu": device.gpu,
                        "model": device.device.model,
                        "driver_version": device.device.driver_version,
                        "state": device.state.value,
                        "energy": energy(device),
                        "readings": {
                            row.reading: {"value": row.value, "source": row.source, "reason": row.reason}
                            for row in rows(device, examination.broken.get(device.device.key, Broken()))
                        },
                    }
                    for device in snapshot.devices
                ],
            }
            for snapshot in examination.world.snapshots
        },
        "findings": [
            {"severity": one.severity.name.lower(), "subject": one.subject, "text": one.text, "advice": one.advice}
            for one in found
        ],
    }


def _captures(examination: Examination, config: Config) -> dict[str, Any]:
    captures: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for snapshot in examination.world.snapshots:
        if not snapshot.up or snapshot.provider == "simulated":  # of which there is nothing to write down
            continue
        try:
            captures[snapshot.provider] = recorded(snapshot.provider, config)
        except RecordingError as error:
            missing[snapshot.provider] = str(error)
    return {"captures": captures, "not_captured": missing}
