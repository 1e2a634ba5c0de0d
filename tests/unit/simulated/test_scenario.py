"""Are mistakes in a scenario all reported, each with its key path, and is nothing but a ScenarioError ever raised?"""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.providers.simulated.assembly import assemble
from exporter.providers.simulated.catalogue import MODELS
from exporter.providers.simulated.provider import BUILT_IN
from exporter.providers.simulated.scenario import ScenarioError, load_scenario
from exporter.providers.simulated.schema import Scenario

EXAMPLES = sorted((Path(__file__).parents[3] / "config" / "scenarios").glob("*.yaml"))


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(text, name="s.yaml")
    return caught.value.messages


def mistake(devices: object, **rest: object) -> str:
    messages = mistakes(json.dumps({"devices": devices, **rest}))
    assert len(messages) == 1, messages
    return messages[0].removeprefix("s.yaml: ")


def test_an_empty_scenario_has_no_devices() -> None:
    assert load_scenario("").devices == ()
    assert load_scenario("devices: []").devices == ()


def test_all_mistakes_are_reported_at_once() -> None:
    text = """
    devices:
      - model: H100-SXM
        load: {pattern: square, period_seconds: -1, duty: 2}
        colour: green
      - model: H100
        load: {pattern: sqare}
    """
    messages = mistakes(text)
    assert [m.split(": ")[1] for m in messages] == [
        "devices[0].load.period_seconds",
        "devices[0].load.duty",
        "devices[0].colour",
        "devices[1].model",
        "devices[1].load.pattern",
    ]


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({}, "devices[0].model: needed: one of H100-SXM, "),
        ({"model": "H100-SX"}, "devices[0].model: expected one of"),
        ({"model": "T4", "faults": [None]}, "devices[0].faults[0].kind: needed"),
        (
            {"model": "T4", "accumulator": {"events": [{"from_seconds": 1}]}},
            "devices[0].accumulator.events[0].kind: needed",
        ),
        ({"model": "T4", "load": {"pattern": "trace"}}, "devices[0].load.points: needed by the pattern trace"),
        ({"model": "T4", "load": {"pattern": "phases"}}, "devices[0].load.phases: needed by the pattern phases"),
        ({"model": "T4", "load": {"low_watts": 3}}, "devices[0].load.low_watts: needs watts"),
        (
            {"model": "T4", "load": {"pattern": "trace", "points": [[1, 50]]}},
            "devices[0].load.points: times start at 0",
        ),
        ({"model": "T4", "load": {"pattern": "trace", "points": [[0, 50], [0, 60]]}}, "devices[0].load.points: times"),
        (
            {"model": "T4", "load": {"pattern": "trace", "unit": "load", "points": [[0, 50]]}},
            "devices[0].load.points[0]: 50 is no load",
        ),
        (
            {"model": "T4", "load": {"pattern": "trace", "points": [[0, 1], [9, 2]], "period_seconds": 5}},
            "devices[0].load.period_seconds: ends before the last point",
        ),
        (
            {"model": "T4", "load": {"pattern": "phases", "phases": [{"pattern": "idle"}, {"pattern": "idle"}]}},
            "devices[0].load.phases[0].seconds: needed, since another phase follows",
        ),
        ({"model": "T4", "faults": [{"kind": "error"}]}, "devices[0].faults[0].status: needed"),
        ({"model": "T4", "faults": [{"kind": "delay"}]}, "devices[0].faults[0].seconds: needed"),
        ({"model": "T4", "faults": [{"kind": "hang", "call": "a b"}]}, "devices[0].faults[0].call: no call has"),
        (
            {"model": "T4", "faults": [{"kind": "hang", "call": "powre"}]},
            'devices[0].faults[0].call: no call has the name "powre", did you mean "power"?',
        ),
        (
            {"model": "T4", "faults": [{"kind": "lost", "from_seconds": 5, "to_seconds": 5}]},
            "devices[0].faults[0].to_seconds: not after from_seconds",
        ),
        (
            {"model": "T4", "faults": [{"kind": "lost", "every_seconds": 5}]},
            "devices[0].faults[0].lasting_seconds: needed",
        ),
        (
            {"model": "T4", "faults": [{"kind": "lost", "every_seconds": 5, "lasting_seconds": 5}]},
            "devices[0].faults[0].lasting_seconds: not less than every_seconds",
        ),
        (
            {"model": "T4", "faults": [{"kind": "ones", "readings": ["powr_watts"]}]},
            "devices[0].faults[0].readings[0]: no",
        ),
        ({"model": "T4", "absent": ["nothing"]}, "devices[0].absent[0]: no property is called"),
        ({"model": "T4", "absent": ["power_watts"]}, "devices[0].absent[0]: power_watts is needed"),
        (
            {"model": "T4", "partitions": [{"profile": "1g.10gb"}]},
            "devices[0].partitions[0].profile: expected one of none",
        ),
        ({"model": "T4", "processes": [{"partition": 0}]}, "devices[0].processes[0].partition: there are 0"),
        (
            {"model": "T4", "processes": [{"every_seconds": e, "lasting_seconds": 1} for e in (5, 6)]},
            "devices[0].processes: those that return must have the same every_seconds",
        ),
        ({"model": "T4", "accumulator": {"scope": "module"}}, "devices[0].accumulator.scope: the model has no module"),
        (
            {"model": "T4", "accumulator": {"events": [{"kind": "swap"}]}},
            "devices[0].accumulator.events[0].device: needed",
        ),
        (
            {"model": "T4", "accumulator": {"events": [{"kind": "swap", "device": 1}]}},
            "devices[0].accumulator.events[0].device: there are 1 devices",
        ),
        (
            {"model": "T4", "accumulator": {"events": [{"kind": "frozen"}, {"kind": "scaled", "from_seconds": 3}]}},
            "devices[0].accumulator.events: frozen, pausing and scaled must not overlap",
        ),
        ({"model": "T4", "count": 2, "texts": {"uuid": "GPU-1"}}, "devices[0].texts.uuid: 2 devices would share it"),
        ({"model": "MI210", "texts": {"unique_id": "XYZ"}}, "devices[0].texts.unique_id: expected 16 hexadecimal"),
        ({"model": "T4", "texts": {"pci_address": "1:2"}}, "devices[0].texts.pci_address: expected dddd:bb:dd.f"),
        ({"model": "T4", "texts": {"name": "a\0b"}}, "devices[0].texts.name: expected up to"),
        ({"model": "T4", "values": {"power_watts": math.inf}}, "devices[0].values.power_watts: expected a number"),
        ({"model": "T4", "values": {"power_wats": 3}}, "devices[0].values.power_wats: unknown option"),
    ],
)
def test_a_mistake_is_named_with_its_path(device: dict[str, object], message: str) -> None:
    assert mistake([device]).startswith(message)


def test_two_devices_cannot_have_one_identity() -> None:
    device = {"model": "T4", "texts": {"uuid": "GPU-1"}}
    assert mistake([device, device]).startswith("devices[1].texts.uuid: devices[0].texts.uuid has it already")


def test_there_is_a_bound_to_the_number_of_devices() -> None:
    assert mistake([{"model": "T4", "count": 200}] * 2).startswith("devices: at most 256")


def test_a_fault_of_one_reading_is_no_fault_of_the_machine() -> None:
    assert mistake([], faults=[{"kind": "lost"}]).startswith("faults[0].kind: lost is a fault of a device")


def test_there_is_one_epoch() -> None:
    assert mistake([], epoch="boot", epoch_seconds=3) == "epoch_seconds: there is an epoch already"


@pytest.mark.parametrize(
    "text", ["a: [", "\t", "- - -\n-", "&a [*a]", "!!python/name:os.system a", "? [a]\n: b", "3", "[]"]
)
def test_yaml_that_is_no_scenario_is_an_error_with_the_name_of_the_file(text: str) -> None:
    assert all(message.startswith("s.yaml: ") for message in mistakes(text))


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        outcome: object = load_scenario(text)
    except ScenarioError as error:
        outcome = error.messages
    assert isinstance(outcome, Scenario) or outcome


def fields_of(names: list[str], values: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.dictionaries(st.sampled_from(names), values, max_size=5)


LEAVES: st.SearchStrategy[object] = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.sampled_from([0, 1, 2, 0.5, 3600, 1e300])
    | st.floats()
    | st.sampled_from(
        ["H100-SXM", "MI300X", "GH200", "square", "phases", "trace", "hang", "reset", "swap", "stuck", "low", "x*"]
    )
)
STRUCTURES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | fields_of(
            [
                *("model", "load", "pattern", "phases", "points", "seconds", "watts", "period_seconds", "accumulator"),
                *(
                    "events",
                    "kind",
                    "from_seconds",
                    "to_seconds",
                    "device",
                    "faults",
                    "values",
                    "power_watts",
                    "absent",
                ),
                *(
                    "processes",
                    "partition",
                    "partitions",
                    "count",
                    "readings",
                    "texts",
                    "every_seconds",
                    "lasting_seconds",
                ),
            ],
            inner,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        fields_of(["load", "accumulator", "faults", "processes", "partitions", "values", "count"], STRUCTURES),
        max_size=2,
    )
)
def test_what_is_accepted_can_be_assembled(devices: list[dict[str, object]]) -> None:
    text = json.dumps({"devices": [{"model": "H100-SXM", **device} for device in devices]})
    try:
        scenario = load_scenario(text.replace("NaN", ".nan").replace("Infinity", ".inf"))
    except ScenarioError:
        return
    assert len(assemble(scenario).devices) == sum(spec.count for spec in scenario.devices)


@pytest.mark.parametrize("path", [BUILT_IN, *EXAMPLES], ids=lambda path: path.name)
def test_shipped_scenarios_are_right(path: Path) -> None:
    scenario = load_scenario(path.read_text(encoding="utf-8"), name=path.name)
    assert len(assemble(scenario).devices) >= 8


def test_examples_are_shipped() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("model", sorted(MODELS))
def test_each_model_can_be_named(model: str) -> None:
    (device,) = assemble(load_scenario(f"devices: [{{model: {model}}}]")).devices
    assert device.texts["name"] == MODELS[model].name
