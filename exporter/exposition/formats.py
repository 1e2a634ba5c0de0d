"""The formats in which the page is served, and how each announces a family.

The lines of the series are the same in all of them; only what stands above a family and at the end of the page differs.
"""

import enum
from typing import Any

from exporter.metrics import Kind, MetricSpec

_SUFFIXES = {Kind.COUNTER: "_total", Kind.INFO: "_info", Kind.GAUGE: ""}


class Dialect(bytes, enum.Enum):
    """How families are announced; the value is what ends the page.

    As bytes its members are hashed without a call into Python, which they are some fifty times for a page.
    """

    PROMETHEUS = b""
    OPENMETRICS = b"# EOF\n"


class Format(enum.Enum):
    """What can be negotiated; the value is the full media type.

    Every name in the tables is valid under the oldest rules, so all escaping schemes give the same page; the one named
    is the scheme that every reader knows.
    """

    TEXT_0_0_4 = "text/plain; version=0.0.4; charset=utf-8"
    TEXT_1_0_0 = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"
    OPENMETRICS_1_0_0 = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"

    @property
    def content_type(self) -> str:
        return self.value

    @property
    def dialect(self) -> Dialect:
        return Dialect.OPENMETRICS if self is Format.OPENMETRICS_1_0_0 else Dialect.PROMETHEUS


def announcement(spec: MetricSpec[Any], dialect: Dialect) -> str:
    """Return the HELP, TYPE and UNIT lines of a family, each ended."""
    text = spec.help.replace("\\", r"\\").replace("\n", r"\n")
    if dialect is Dialect.PROMETHEUS:
        kind = Kind.GAUGE if spec.kind is Kind.INFO else spec.kind
        return f"# HELP {spec.name} {text}\n# TYPE {spec.name} {kind}\n"
    # OpenMetrics names the family without the suffix that its kind gives to the samples, and escapes quotes in HELP.
    name = spec.name.removesuffix(_SUFFIXES[spec.kind])
    text = text.replace('"', r"\"")
    unit = f"# UNIT {name} {spec.unit}\n" if spec.unit else ""
    return f"# HELP {name} {text}\n# TYPE {name} {spec.kind}\n{unit}"
