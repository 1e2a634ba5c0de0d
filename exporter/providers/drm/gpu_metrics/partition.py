"""What the table of one partition says: the file xcp_metrics, which drivers have from 2025 on.

Its versions are numbered apart from those of gpu_metrics. With them the table of the whole GPU (from its v1_9) leaves
out what each partition does.
"""

from collections.abc import Mapping

from exporter.providers.drm.gpu_metrics.decoding import whole_table
from exporter.providers.drm.gpu_metrics.layouts import Layout, lay_out
from exporter.providers.drm.gpu_metrics.table import Table
from exporter.providers.sanitise import RATIO

_LAYOUTS: Mapping[tuple[int, int], Layout] = {
    (1, 0): lay_out("current_gfxclk:8H _:4H _:4H _:4H current_uclk:H _:H busy:8I jpeg:40H video:4H _:40Q")
}
_DESCRIBES_ITSELF = (1, 1)


def decode_partition(raw: bytes) -> tuple[float | None, bool]:
    """Return how busy the compute dies of a partition are, and whether what was said of it cannot be.

    Raises RefusedError, as `decode` does.
    """
    _, layout = whole_table("xcp_metrics", raw, _LAYOUTS, _DESCRIBES_ITSELF)
    table = Table(raw, layout)
    return table.mean(("busy",), "partitions", RATIO, per=100), bool(table.readings.rejected)
