"""How many memory errors has the card counted since its driver was loaded? Read from amdgpu's RAS counters."""

import re

from exporter.providers.drm.reading import Reading
from exporter.providers.sanitise import COUNT

_FILE = "_err_count"
_LINE = re.compile(rb"^(ue|ce|de):\s*(\S+)\s*$", re.MULTILINE)
_CLASSES = {b"ce": "corrected", b"ue": "uncorrected", b"de": "deferred"}


def errors(reading: Reading) -> dict[str, float]:
    """Return the sum over all blocks of the chip (memory controller, DMA engines, graphics, ...) by class."""
    name = "ecc_errors"
    total: dict[str, float] = {}
    for block in sorted(entry for entry in reading.names("ras") if entry.endswith(_FILE)):
        said = reading.raw(name, f"ras/{block}")
        for line, digits in _LINE.findall(said or b""):
            value: object = int(digits) if digits.isdigit() else digits.decode("ascii", "replace")
            count = reading.note(name, reading.readings.number(name, value, COUNT, bits=64), "sysfs")
            if count is not None:
                kind = _CLASSES[line]
                total[kind] = total.get(kind, 0.0) + count
    return total
