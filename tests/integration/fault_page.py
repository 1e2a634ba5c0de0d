"""What the fault matrix looks for on a page."""

import re

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WANTED = (
    *("gpu_up{", "gpu_state{", "gpu_power_watts{", "gpu_energy_joules_total{", "gpu_info{", "gpu_partition_info{"),
    *("gpu_exporter_provider_up{", "gpu_exporter_provider_info{", "gpu_exporter_worker_restarts_total{"),
    *("gpu_exporter_read_failures_total{", "gpu_exporter_rejected_readings_total{"),
)


class Page:
    """The series of a page that the matrix is about; the parser of prometheus_client takes ten times as long."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.names = names
        """Keys of the devices, by position."""
        self.series: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in text.splitlines():
            if line.startswith(_WANTED):
                name, _, rest = line.partition("{")
                labels, _, value = rest.rpartition("} ")
                self.series.setdefault(name, []).append((dict(_LABEL.findall(labels)), float(value)))

    def value(self, name: str, device: int | None = None, **labels: str) -> float | None:
        """Return the value of the first series with these labels, or None."""
        wanted = labels if device is None else {**labels, "uuid": self.names[device]}
        found = (value for have, value in self.series.get(name, ()) if wanted.items() <= have.items())
        return next(found, None)

    def labels(self, name: str, device: int | None = None, **labels: str) -> dict[str, str]:
        wanted = labels if device is None else {**labels, "uuid": self.names[device]}
        return next((have for have, _ in self.series.get(name, ()) if wanted.items() <= have.items()), {})

    def sum(self, name: str, **labels: str) -> float:
        return sum(value for have, value in self.series.get(name, ()) if labels.items() <= have.items())

    def state(self, device: int) -> str | None:
        """Return the state of the device where exactly one is in force and `gpu_up` agrees; None: it is not shown."""
        uuid = self.names[device]
        states = [h["state"] for h, v in self.series.get("gpu_state", ()) if h["uuid"] == uuid and v == 1]
        if not states:
            return None
        up = self.value("gpu_up", device)
        return states[0] if len(states) == 1 and up == float(states[0] in ("ok", "asleep")) else f"{states} up {up}"
