"""Who is told what the workers report: the fleet that pages are made of, or a recorder of readings."""

from typing import Protocol

from exporter.model import Device, GpuState, Group, Sample


class Audience(Protocol):
    """Called from the event loop, one provider's reports in the order in which they came. Nothing here waits."""

    def enumerated(self, provider: str, devices: tuple[Device, ...], now: float) -> None:
        """Take what a provider enumerates, all of it each time."""

    def observed(self, provider: str, sample: Sample, now: float, wall: float) -> None:
        """Take one sample: `now` is CLOCK_MONOTONIC, `wall` Unix time, both seconds, of the moment of the call."""

    def provider_status(self, provider: str, *, up: bool, reason: str, library_version: str | None) -> None:
        """Take a provider's health; `reason` says in words why it is not up, and is empty when all is well."""

    def device_state(self, provider: str, key: str, state: GpuState) -> None:
        """Put a device of a provider in question (HUNG) or clear it (OK)."""

    def relieved(self, provider: str, now: float) -> frozenset[str]:
        """Return the keys, as this provider has them, of devices whose energy it need not read often."""

    def restarted(self, provider: str, cause: str) -> None:
        """Count an end of the provider's worker, by cause of metrics.RESTART_CAUSES."""

    def is_wanted(self, provider: str) -> bool:
        """Tell whether something is wrong when it is down."""

    def pass_took(self, provider: str, group: Group, seconds: float) -> None:
        """Take how long the last pass over all devices took."""

    def abandoned(self, count: int) -> None:
        """Take how many children could not be killed, of all providers."""

    def released(self, flag: bool, now: float) -> None:
        """Take whether the devices are released on request."""
