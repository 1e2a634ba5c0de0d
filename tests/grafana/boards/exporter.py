"""Does the exporter itself do what it should?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards.board import board
from tests.grafana.boards.panels import (
    BAD,
    FAIR,
    GOOD,
    ONE_IS_GOOD,
    UP,
    ZERO_IS_GOOD,
    Column,
    Step,
    graph,
    query,
    row,
    stat,
    table,
    timeline,
)

WHERE = "{{instance}} {{provider}}"


def _health() -> list[dict[str, Any]]:
    return [
        row("Health"),
        stat("Exporters up", "Exporters that Prometheus could scrape.", "none", query(f"sum({UP})")),
        stat(
            "Exporters down",
            "Exporters that Prometheus could not scrape.",
            "none",
            query(f"sum(1 - {UP})"),
            steps=ZERO_IS_GOOD,
            base=GOOD,
        ),
        stat(
            "Providers down",
            "Vendors' libraries or drivers that do not work on a host that has such hardware.",
            "none",
            query("count(gpu_exporter_provider_up{@} == 0) or vector(0)"),
            steps=ZERO_IS_GOOD,
            base=GOOD,
        ),
        stat(
            "Oldest readings",
            "Time since the provider that is silent for longest gave a reading.",
            "s",
            query("max(time() - gpu_exporter_last_sample_timestamp_seconds{@})"),
            decimals=1,
            steps=(Step(15, FAIR), Step(60, BAD)),
            base=GOOD,
        ),
        stat(
            "Series dropped",
            "Series left off the pages: beyond the bounds, as duplicates, or without a number.",
            "none",
            query("sum(gpu_exporter_series_dropped{@}) or vector(0)"),
            steps=(Step(1, FAIR),),
            base=GOOD,
        ),
        stat(
            "Devices released",
            "Exporters that have let go of their devices on request.",
            "none",
            query("sum(gpu_exporter_released{@})"),
            steps=(Step(1, FAIR),),
            base=GOOD,
        ),
        table(
            "Providers",
            "Each vendor's library: whether it delivers, its version, and why not; devices that answer, and that PCI shows.",
            (
                Column("Up", "bool_yes_no", "max by (instance, provider) (gpu_exporter_provider_up{@})"),
                Column(
                    "Info",
                    "none",
                    "max by (instance, provider, library_version, reason) (gpu_exporter_provider_info{@})",
                ),
                Column("Devices", "none", "max by (instance, provider) (gpu_exporter_devices{@})"),
                Column("Expected", "none", "max by (instance, provider) (gpu_exporter_devices_expected{@})"),
            ),
            width=16,
            hide=("Value #B",),
        ),
        table(
            "Versions",
            "Versions of the exporters and of their Python.",
            (Column("Exporters", "none", "count by (version, python_version) (gpu_exporter_build_info{@})"),),
            width=8,
        ),
    ]


def _reading() -> list[dict[str, Any]]:
    return [
        row("Reading the devices"),
        graph(
            "Time of a pass",
            "How long the last pass over all devices took, by group of readings.",
            "s",
            query(
                "max by (instance, provider, group) (gpu_exporter_sample_duration_seconds{@})", f"{WHERE} {{{{group}}}}"
            ),
        ),
        graph(
            "Age of readings",
            "Time since each provider gave a reading.",
            "s",
            query("time() - gpu_exporter_last_sample_timestamp_seconds{@}", WHERE),
        ),
        graph(
            "Readings that broke",
            "Readings that broke with an unexpected error, per second, by reading.",
            "cps",
            query(
                "sum by (instance, provider, reading) (rate(gpu_exporter_read_failures_total{@}[$__rate_interval]))",
                f"{WHERE} {{{{reading}}}}",
            ),
        ),
        graph(
            "Readings rejected",
            "Readings outside their physical range, per second, by reading.",
            "cps",
            query(
                "sum by (instance, provider, reading) (rate(gpu_exporter_rejected_readings_total{@}[$__rate_interval]))",
                f"{WHERE} {{{{reading}}}}",
            ),
        ),
        graph(
            "Worker restarts",
            "Ends of the child process that reads a vendor's library, in each interval, by cause.",
            "none",
            query(
                "sum by (instance, provider, cause) (increase(gpu_exporter_worker_restarts_total{@}[$__rate_interval]))",
                f"{WHERE} {{{{cause}}}}",
            ),
        ),
        timeline(
            "Providers up",
            "When each provider delivered readings.",
            query("gpu_exporter_provider_up{@}", WHERE),
            color=GOOD,
            other=BAD,
        ),
        stat(
            "Workers abandoned",
            "Child processes that could not be killed and are waited for.",
            "none",
            query("sum(gpu_exporter_workers_abandoned{@})"),
            steps=(Step(1, BAD),),
            base=GOOD,
            width=6,
        ),
        stat(
            "Journal",
            "Whether totals are kept over a restart, on the exporters that have a directory for it.",
            "bool_yes_no",
            query("min(gpu_exporter_journal_up{@})"),
            steps=ONE_IS_GOOD,
            base=BAD,
            width=6,
        ),
        stat(
            "Configuration",
            "Whether all configurations could be read when they last were; if not, what was before holds.",
            "bool_yes_no",
            query("min(gpu_exporter_config_last_reload_successful{@})"),
            steps=ONE_IS_GOOD,
            base=BAD,
            width=6,
        ),
        stat(
            "Last configured",
            "When a configuration was last read.",
            "dateTimeAsLocal",
            query("max(gpu_exporter_config_last_reload_success_timestamp_seconds{@}) * 1000"),
            width=6,
        ),
    ]


def _attribution() -> list[dict[str, Any]]:
    return [
        row("Who uses the GPUs"),
        table(
            "Sources",
            "Sources that tell who uses the GPUs, and why one does not.",
            (
                Column("Up", "bool_yes_no", "max by (instance, source) (gpu_exporter_attribution_up{@})"),
                Column("Info", "none", "max by (instance, source, reason) (gpu_exporter_attribution_info{@})"),
            ),
            width=12,
            hide=("Value #B",),
        ),
        graph(
            "Not placed",
            "Processes that could not be placed in a workload, and device ids that were given away and belong to no GPU that is known.",
            "none",
            query("gpu_exporter_attribution_unplaced_processes{@}", "{{instance}} processes"),
            query("gpu_exporter_attribution_unplaced_devices{@}", "{{instance}} devices"),
        ),
    ]


def _serving() -> list[dict[str, Any]]:
    return [
        row("Serving pages"),
        graph(
            "Time of a scrape",
            "How long Prometheus waited for each page.",
            "s",
            query(
                "scrape_duration_seconds{@} and on (job) group by (job) (gpu_exporter_build_info{@})", "{{instance}}"
            ),
        ),
        graph(
            "Samples of a scrape",
            "Samples on each page.",
            "none",
            query("scrape_samples_scraped{@} and on (job) group by (job) (gpu_exporter_build_info{@})", "{{instance}}"),
        ),
        graph(
            "Requests without a page",
            "Requests that got no page, per second, by cause.",
            "reqps",
            query(
                "sum by (instance, cause) (rate(gpu_exporter_http_errors_total{@}[$__rate_interval]))",
                "{{instance}} {{cause}}",
            ),
        ),
        graph(
            "Series dropped by family",
            "Series left off the page, by family.",
            "none",
            query("max by (instance, family) (gpu_exporter_series_dropped{@})", "{{instance}} {{family}}"),
        ),
    ]


def dashboard() -> dict[str, Any]:
    return board(
        "exporter",
        "GPU exporter",
        "Health of the exporters themselves: providers, readings, restarts, attribution and pages.",
        [*_health(), *_reading(), *_attribution(), *_serving()],
    )
