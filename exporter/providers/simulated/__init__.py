"""The provider of simulated devices: believable GPUs of several vendors, whose true energy is known."""

from exporter.providers.simulated.provider import open_simulated

__all__ = ["open_simulated"]
