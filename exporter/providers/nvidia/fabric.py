"""How far a GPU is in joining a fabric of GPUs over several hosts (GB200 NVL72, or the NVSwitches of one host)."""

import ctypes
import uuid
from typing import Any

from exporter.model import Fabric
from exporter.providers.nvidia.library import AbsentError, Known
from exporter.providers.nvidia.reading import Reading

# By number, after 0: not supported.
_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
_NO_CLUSTER = bytes(16)

# The call that fills in a struct with a version came with driver 535; the older one is to be removed in CUDA 14.
_CALLS = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)


def fabric(reading: Reading, fixed: Known) -> Fabric | None:
    """Return the state and, once it is part of one, the fabric; None where there is none.

    `fixed`: of this GPU.
    """
    info = next((info for info in (_asked(reading, fixed, *call) for call in _CALLS) if info is not None), None)
    state = None if info is None else _STATES.get(info.state)
    if info is None or state is None:
        return None
    cluster = bytes(info.clusterUuid)
    # NVSwitches within one host make a fabric without a cluster.
    if cluster == _NO_CLUSTER:
        return Fabric(state=state)
    return Fabric(state=state, cluster_uuid=str(uuid.UUID(bytes=cluster)), clique=int(info.cliqueId))


def _asked(reading: Reading, fixed: Known, function: str, structure: str) -> Any:
    if (function,) in fixed:  # as `Reading.unless_refused`, whose arguments tell the calls of a function apart
        return None
    try:
        info = reading.nvml.make(structure)
    except AbsentError:
        return None
    if reading.get("fabric", function, ctypes.pointer(info)) is not None:
        return info
    if not reading.broke("fabric"):
        fixed[function,] = None
    return None
