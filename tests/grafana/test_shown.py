"""Values, legends and tables in the pictures are those that Grafana would show."""

import pytest

from tests.grafana.queries import DIRECTORY, load, panels
from tests.grafana.shown import legend, rows, said


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (7_002_000.0, "joule", 3, "7.002 MJ"),
        (0.18763, "kwatth", 3, "0.188 kWh"),
        (16_980.0, "watt", 2, "16.98 kW"),
        (0.0, "watt", None, "0.00 W"),
        (0.9707, "percentunit", 2, "97.07 %"),
        (-0.429, "percentunit", None, "-42.9 %"),
        (0.0045, "s", None, "4.5 ms"),
        (433.0, "s", None, "433 s"),
        (1.0, "bool_yes_no", None, "Yes"),
        (1.0152, "none", 0, "1"),
        (33.0, "none", None, "33"),
        (65.0, "celsius", None, "65 °C"),
        (0.0, "dateTimeAsLocal", None, "1970-01-01 00:00:00"),
    ],
)
def test_a_value_is_shown_in_its_unit(value: float, unit: str, decimals: int | None, text: str) -> None:
    assert said(value, unit, decimals) == text


def test_a_legend_is_filled_from_labels() -> None:
    assert legend({"legendFormat": "{{gpu}} {{model}}"}, {"gpu": "nvidia0", "model": "T4"}) == "nvidia0 T4"
    assert legend({"legendFormat": "__auto", "refId": "B"}, {}) == "B"


def test_a_table_has_one_row_for_each_set_of_labels_and_a_column_for_each_query() -> None:
    (panel,) = [p for p in panels(load(DIRECTORY / "gpu-exporter-fleet.json")) if p["title"] == "Held and idle"]
    labels = [{"instance": "a", "gpu": f"nvidia{n}", "uuid": f"GPU-{n}"} for n in range(2)]
    found = {"A": [[labels[0], [[0, 0.5]]], [labels[1], [[0, 0.25]]]], "B": [], "C": [[labels[1], [[0, 72.0]]]]}
    assert rows(panel, found) == (
        ["instance", "gpu", "uuid", "Memory in use", "Power"],
        [["a", "nvidia0", "GPU-0", "50.0 %", ""], ["a", "nvidia1", "GPU-1", "25.0 %", "72.00 W"]],
    )
