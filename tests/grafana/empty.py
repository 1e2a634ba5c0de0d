"""Queries of panels that find nothing on the site of the tests, each with the reason.

A key is a panel, or one query of it by its letter.
"""

from tests.grafana.queries import Target

_DIVERGENCE = "The cross-check needs five minutes of both accounts. The pictures are taken after more than that."
_WINDOW = "What the CPU can address of the memory is told by the providers of real AMD GPUs, not by the simulated one."

EMPTY = {
    "gpu-exporter-energy: Worst divergence": _DIVERGENCE,
    "gpu-exporter-energy: Hardware against integrated": _DIVERGENCE,
    "gpu-exporter-energy: Divergence": _DIVERGENCE,
    "gpu-exporter-energy: GPUs: E": _DIVERGENCE,
    "gpu-exporter-gpu: Divergence": _DIVERGENCE,
    "gpu-exporter-exporter: Providers: D": "Simulated devices are not on PCI, so none are expected there.",
    "gpu-exporter-gpu: Host memory and window: C": _WINDOW,
    "gpu-exporter-gpu: Host memory and window: D": _WINDOW,
    "gpu-exporter-gpu: Load of partitions": "NVIDIA does not tell it of MIG instances, and AMD's is not simulated.",
}


def excused(target: Target) -> bool:
    return f"{target.board}: {target.panel}" in EMPTY or str(target) in EMPTY
