"""From which call of a vendor's library, or which file of the kernel, a provider has a reading.

For people who want to ask the same at a terminal. Kept beside the providers and held to what they do by a test: each
word is one that the provider's code says, and `*` stands for what it puts in. What is named first is asked first.
"""

from collections.abc import Mapping
from types import MappingProxyType

_FIELDS = "nvmlDeviceGetFieldValues"
_NVIDIA: Mapping[str, str] = {
    "power_watts": f"{_FIELDS} 185 186, nvmlDeviceGetPowerUsage",
    "power_limit_watts": "nvmlDeviceGetEnforcedPowerLimit",
    "power_limit_default_watts": "nvmlDeviceGetPowerManagementDefaultLimit",
    "module_power_watts": f"{_FIELDS} 185 186",
    "memory_power_watts": f"{_FIELDS} 185",
    "energy_counter_joules": f"{_FIELDS} 83, nvmlDeviceGetTotalEnergyConsumption",
    "module_energy_counter_joules": f"{_FIELDS} 191, nvmlDeviceGetTotalEnergyConsumption",
    "utilization_ratio": "nvmlDeviceGetUtilizationRates",
    "memory_controller_utilization_ratio": "nvmlDeviceGetUtilizationRates",
    "engine_utilization_ratio": "nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization,"
    " nvmlDeviceGetJpgUtilization, nvmlDeviceGetOfaUtilization",
    "memory_used_bytes": "nvmlDeviceGetMemoryInfo",
    "memory_size_bytes": "nvmlDeviceGetMemoryInfo",
    "memory_reserved_bytes": "nvmlDeviceGetMemoryInfo",
    "temperature_celsius": f"nvmlDeviceGetTemperatureV, nvmlDeviceGetTemperature, {_FIELDS} 82",
    "temperature_limit_celsius": "nvmlDeviceGetTemperatureThreshold",
    "temperature_margin_celsius": "nvmlDeviceGetMarginTemperature",
    "clock_hertz": "nvmlDeviceGetClockInfo",
    "fan_speed_ratio": "nvmlDeviceGetFanSpeed",
    "performance_state": "nvmlDeviceGetPerformanceState",
    "throttled": "nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetCurrentClocksThrottleReasons",
    "throttle_seconds": _FIELDS,
    "ecc_errors": "nvmlDeviceGetTotalEccErrors",
    "ecc_lifetime_errors": "nvmlDeviceGetTotalEccErrors",
    "memory_remap_failed": "nvmlDeviceGetRemappedRows",
    "memory_remap_pending": "nvmlDeviceGetRemappedRows",
    "retired_pages": "nvmlDeviceGetRetiredPages",
    "pcie_link_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_link_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_link_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "pcie_replays": "nvmlDeviceGetPcieReplayCounter",
    "pcie_receive_bytes": _FIELDS,
    "pcie_transmit_bytes": _FIELDS,
    "links": f"{_FIELDS} 91, nvmlDeviceGetNvLinkState",
    "recovery_action": f"{_FIELDS} 230",
    "fabric": "nvmlDeviceGetGpuFabricInfoV, nvmlDeviceGetGpuFabricInfo",
    "partitions": "nvmlDeviceGetMigMode, nvmlDeviceGetMigDeviceHandleByIndex",
    "processes": "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses,"
    " nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetProcessUtilization",
    "process_counts": "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses,"
    " nvmlDeviceGetMPSComputeRunningProcesses",
    "sm_active_ratio": "nvmlGpmSampleGet, nvmlGpmMetricsGet",
    "sm_occupancy_ratio": "nvmlGpmSampleGet, nvmlGpmMetricsGet",
    "tensor_active_ratio": "nvmlGpmSampleGet, nvmlGpmMetricsGet",
    "dram_active_ratio": "nvmlGpmSampleGet, nvmlGpmMetricsGet",
    "partition_sm_active_ratio": "nvmlGpmMigSampleGet, nvmlGpmMetricsGet",
}
_METRICS_INFO = "amdsmi_get_gpu_metrics_info"
_AMD: Mapping[str, str] = {
    "power_watts": f"amdsmi_get_power_info, {_METRICS_INFO}",
    "power_limit_watts": "amdsmi_get_power_info, amdsmi_get_power_cap_info",
    "power_limit_default_watts": "amdsmi_get_power_cap_info",
    "energy_counter_joules": "amdsmi_get_energy_count",
    "utilization_ratio": "amdsmi_get_gpu_activity",
    "memory_controller_utilization_ratio": "amdsmi_get_gpu_activity",
    "engine_utilization_ratio": "amdsmi_get_gpu_activity",
    "memory_used_bytes": "amdsmi_get_gpu_vram_usage",
    "memory_size_bytes": "amdsmi_get_gpu_vram_usage, amdsmi_get_gpu_memory_*",
    "memory_visible_used_bytes": "amdsmi_get_gpu_memory_*",
    "memory_visible_size_bytes": "amdsmi_get_gpu_memory_*",
    "system_memory_used_bytes": "amdsmi_get_gpu_memory_*",
    "system_memory_size_bytes": "amdsmi_get_gpu_memory_*",
    "temperature_celsius": "amdsmi_get_temp_metric",
    "temperature_limit_celsius": "amdsmi_get_temp_metric",
    "clock_hertz": "amdsmi_get_clock_info",
    "fan_speed_ratio": "amdsmi_get_gpu_fan_speed",
    "throttled": _METRICS_INFO,
    "throttle_seconds": _METRICS_INFO,
    "ecc_errors": "amdsmi_get_gpu_total_ecc_count",
    "pcie_link_generation": "amdsmi_get_pcie_info, amdsmi_get_pcie_link_status",
    "pcie_link_width": "amdsmi_get_pcie_info, amdsmi_get_pcie_link_status",
    "pcie_link_width_max": "amdsmi_get_pcie_info, amdsmi_get_pcie_link_caps",
    "pcie_replays": "amdsmi_get_pcie_info",
    "links": _METRICS_INFO,
    "partitions": f"{_METRICS_INFO}, amdsmi_get_gpu_vram_usage",
    "processes": "amdsmi_get_gpu_process_list, amdsmi_get_gpu_process_info",
    "process_counts": "amdsmi_get_gpu_process_list",
}
_TABLE = "gpu_metrics"
_DRM: Mapping[str, str] = {
    "power_watts": f"power1_average, power1_input, {_TABLE}",
    "power_limit_watts": "power1_cap, power1_max, power2_max",
    "power_limit_default_watts": "power1_cap_default, power1_rated_max, power2_rated_max",
    "energy_counter_joules": f"energy1_input, energy2_input, {_TABLE}",
    "utilization_ratio": f"gpu_busy_percent, {_TABLE}, fdinfo",
    "memory_controller_utilization_ratio": f"mem_busy_percent, {_TABLE}",
    "engine_utilization_ratio": f"{_TABLE}, fdinfo",
    "memory_used_bytes": "mem_info_*_used, lmem_avail_bytes, fdinfo",
    "memory_size_bytes": "mem_info_*_total, lmem_total_bytes, physical_vram_size_bytes",
    "memory_visible_used_bytes": "mem_info_*_used",
    "memory_visible_size_bytes": "mem_info_*_total",
    "system_memory_used_bytes": "mem_info_*_used, fdinfo",
    "system_memory_size_bytes": "mem_info_*_total",
    "temperature_celsius": f"temp*_input, {_TABLE}",
    "temperature_limit_celsius": "temp*crit, temp*emergency",
    "clock_hertz": f"freq*_input, {_TABLE}, pp_dpm_sclk, rps_act_freq_mhz, gt_act_freq_mhz, act_freq",
    "fan_speed_ratio": "pwm1",
    "throttled": f"{_TABLE}, throttle_reason_status, throttle*status",
    "throttle_seconds": _TABLE,
    "ecc_errors": "ras/*_err_count",
    "pcie_link_generation": f"current_link_speed, {_TABLE}",
    "pcie_link_width": f"current_link_width, {_TABLE}",
    "pcie_link_width_max": "max_link_width",
    "pcie_replays": f"pcie_replay_count, {_TABLE}",
    "links": _TABLE,
    "partitions": f"current_compute_partition, {_TABLE}, kfd",
    "processes": "fdinfo",
    "process_counts": "fdinfo",
}

ORIGINS: Mapping[str, Mapping[str, str]] = MappingProxyType({"nvidia": _NVIDIA, "amd": _AMD, "drm": _DRM})
"""Words by provider and field of Sample, a comma between what is asked one after the other."""


def origin(provider: str, reading: str) -> str:
    """Return from what a provider has a reading; empty: from nothing that could be asked at a terminal."""
    return ORIGINS.get(provider, {}).get(reading, "")
