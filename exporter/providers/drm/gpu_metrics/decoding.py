"""What do the bytes of amdgpu's gpu_metrics say? By the table's own format, content and size, or it is refused."""

from collections.abc import Callable, Mapping
from typing import Any

from exporter.providers.drm.gpu_metrics.apu import read_v2, read_v2_4, read_v3
from exporter.providers.drm.gpu_metrics.attributes import layout_of
from exporter.providers.drm.gpu_metrics.discrete import read_discrete, read_energy
from exporter.providers.drm.gpu_metrics.layouts import HEADER, LAYOUTS, Layout
from exporter.providers.drm.gpu_metrics.record import Metrics, RefusedError
from exporter.providers.drm.gpu_metrics.table import Table
from exporter.providers.drm.gpu_metrics.throttle import read_throttling
from exporter.providers.sanitise import Range

_SECONDS = Range(0.0, 1e10)  # 300 years

_DESCRIBES_ITSELF = (1, 9)
_APUS: Mapping[tuple[int, int], Callable[[Table], dict[str, Any]]] = {
    (2, 1): read_v2,
    (2, 2): read_v2,
    (2, 3): read_v2,
    (2, 4): read_v2_4,
    (3, 0): read_v3,
}


def decode(raw: bytes, *, whole: bool = True) -> Metrics:
    """Decode a table. Raises RefusedError: unknown version, wrong size, cut short, or nothing in it.

    Not `whole`: of a discrete GPU power, energy and their time alone, which are wanted ten times a second.
    """
    version, layout = whole_table("gpu_metrics", raw, LAYOUTS, _DESCRIBES_ITSELF)
    table = Table(raw, layout)
    clock = table.one("clock", "energy_counter_at", _SECONDS, per=1e9) if table.raw("clock") else None
    if not whole and version not in _APUS:
        return Metrics(
            table=f"v{version[0]}_{version[1]}",
            energy_counter_at=clock,
            **read_energy(table),
            rejected=table.readings.rejected,
        )
    fields = _APUS.get(version, read_discrete)(table)
    return Metrics(
        table=f"v{version[0]}_{version[1]}",
        energy_counter_at=clock,
        clock_hertz=table.clocks(),
        **fields,
        **read_throttling(table),
        rejected=table.readings.rejected,
    )


def whole_table(
    file: str, raw: bytes, layouts: Mapping[tuple[int, int], Layout], describes_itself: tuple[int, int]
) -> tuple[tuple[int, int], Layout]:
    """Return format and content of a table, and where what is. `file`: its name, for people. Raises RefusedError."""
    if len(raw) < HEADER.size:
        raise RefusedError(f"{file} is cut short: {len(raw)} bytes", torn=True)
    size, form, content = HEADER.unpack_from(raw)
    name = f"{file} v{form}_{content}"
    layout = layout_of(name, raw, size) if (form, content) == describes_itself else layouts.get((form, content))
    if layout is None:
        raise RefusedError(f"{file} has the unknown version {form}.{content}")
    if size != layout.size:
        raise RefusedError(f"{name} says {size} bytes, and has {layout.size}", torn=True)
    if len(raw) < size:
        raise RefusedError(f"{name} is cut short: {len(raw)} of {size} bytes", torn=True)
    # Ones: the firmware did not answer, or the card has fallen off its bus. Zeros: nothing is written yet.
    if raw[HEADER.size : size] in (b"\xff" * (size - HEADER.size), bytes(size - HEADER.size)):
        raise RefusedError(f"{name} is empty")
    return (form, content), layout
