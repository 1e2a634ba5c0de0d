"""Prometheus exporter for GPUs whose joules can be trusted."""

__version__ = "0.1.0"
