"""A provider over a tree of files, with a clock that is moved by hand."""

from pathlib import Path
from typing import Any

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.drm.opening import open_cards
from exporter.providers.drm.provider import DrmProvider
from exporter.providers.procfs import Proc
from exporter.providers.protocol import OpenContext
from tests.drm import Answers, hwmon
from tests.unit.drm.tables import table

ALL = Groups({Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES})
GIB = 2**30


class Bench:
    """`answers`: the files as the driver answers them; what it does for the worker is counted in `pauses`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers = Answers()
        self.now = 1000.0
        self.pauses = 0
        self.provider: DrmProvider = self._open()

    def read(self, groups: Groups = ALL, device: Device | None = None) -> Sample:
        """Read the first card, or `device`."""
        return self.provider.read(self.provider.devices()[0] if device is None else device, groups)

    def _open(self) -> DrmProvider:
        context = OpenContext(between_calls=self._pause, root=self.root, wrap=lambda _: self.answers)
        proc = Proc(self.root, frozenset({50, 51}), boottime=lambda: 1e6)
        provider = open_cards(context, proc=proc, clock=lambda: self.now).provider
        assert isinstance(provider, DrmProvider)
        return provider

    def _pause(self) -> None:
        self.pauses += 1


def radeon(**files: Any) -> dict[str, Any]:
    """Return the files of an RX 7900 XT, with an accumulator as some have it."""
    sensors = hwmon(
        "amdgpu",
        power1_average=97_000_000,
        power1_input=101_000_000,
        power1_label="PPT",
        power1_cap=265_000_000,
        power1_cap_default=265_000_000,
        power1_cap_max=290_000_000,
        power1_cap_min=238_000_000,
        temp1_input=46_000,
        temp1_label="edge",
        temp1_crit=100_000,
        temp1_emergency=105_000,
        temp2_input=61_000,
        temp2_label="junction",
        temp2_crit=110_000,
        temp2_emergency=115_000,
        temp3_input=70_000,
        temp3_label="mem",
        temp3_crit=108_000,
        temp3_emergency=113_000,
        freq1_input=2_075_000_000,
        freq1_label="sclk",
        freq2_input=1_249_000_000,
        freq2_label="mclk",
        in0_input=906,
        in0_label="vddgfx",
        pwm1=51,
        fan1_input=1200,
    )
    return {
        **sensors,
        "unique_id": "a32343daf897162a",
        "vbios_version": "113-D70401XTX-112",
        "fw_version/smc_fw_version": "0x004e7900",
        "fw_version/vce_fw_version": "0x00000000",
        "gpu_busy_percent": 42,
        "mem_busy_percent": 7,
        "mem_info_vram_total": 20 * GIB,
        "mem_info_vram_used": 3 * GIB,
        "mem_info_vis_vram_total": 20 * GIB,
        "mem_info_vis_vram_used": 2 * GIB,
        "mem_info_gtt_total": 33_668_050_944,
        "mem_info_gtt_used": 144_560_128,
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": 16,
        "max_link_speed": "16.0 GT/s PCIe",
        "max_link_width": 16,
        "pcie_replay_count": 3,
        "ras/umc_err_count": "ue: 1\nce: 20",
        "ras/gfx_err_count": "ue: 0\nce: 3",
        "ras/features": "feature mask: 0x0",
        "gpu_metrics": radeon_table(),
        **files,
    }


def radeon_table(**values: Any) -> bytes:
    return table(
        1,
        3,
        **{
            "energy_accumulator": 5 * 65536,
            "system_clock_counter": 7_000_000_000,
            "average_mm_activity": 30,
            "average_socket_power": 97,
            "current_socclk": 1200,
            "current_fan_speed": 1200,
            **values,
        },
    )
