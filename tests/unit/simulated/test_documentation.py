"""Do the pages about scenarios and plans name all that there is?"""

import re
from pathlib import Path

import msgspec
import pytest

from exporter.providers.simulated import schema
from exporter.providers.simulated.catalogue import MODELS
from exporter.providers.simulated.properties import NUMBERS, TEXTS
from exporter.providers.simulated.readings import CALLS
from exporter.providers.simulated.scenario import load_scenario

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
PLAN = (ROOT / "tests" / "native" / "PLAN.md").read_text(encoding="utf-8")

KEYS = sorted(
    {
        field
        for struct in (
            *(schema.Scenario, schema.DeviceSpec, schema.Load, schema.Phase, schema.Counter, schema.Event),
            *(schema.Process, schema.Partition, schema.FaultSpec),
        )
        for field in struct.__struct_fields__
    }
)


@pytest.mark.parametrize("key", KEYS)
def test_each_key_is_explained(key: str) -> None:
    assert re.search(rf"[`.]{key}\b", PAGE)


def test_models_patterns_kinds_and_calls_are_listed() -> None:
    words = set(MODELS) | {"open", "enumerate"} | {name for calls in CALLS.values() for name in calls}
    for struct, field in (
        (schema.Load, "pattern"),
        (schema.Counter, "kind"),
        (schema.Event, "kind"),
        (schema.FaultSpec, "kind"),
    ):
        info = next(f for f in msgspec.structs.fields(struct) if f.name == field)
        words |= set(info.type.__args__)
    assert {word for word in words if f"`{word}`" not in PAGE and f"`{word}:" not in PAGE} == set()


def test_examples_of_the_page_are_scenarios() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert examples
    for example in examples:
        assert load_scenario(example).devices


def test_properties_are_those_that_stand_ins_are_told_of() -> None:
    families = re.sub(r"<\w+>", "*", PLAN)
    named = set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z*0-9]+)*", families))
    patterns = [re.compile(name.replace("*", r"\w+") + r"\Z") for name in named]
    assert [name for name in (*NUMBERS, *TEXTS) if not any(p.match(name) for p in patterns)] == []
