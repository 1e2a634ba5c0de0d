"""Are fields and events asked for past pynvml's own functions as through them?"""

import ctypes
from types import ModuleType
from typing import Any

import pynvml
import pytest

from exporter.providers.nvidia.fields import Fields
from exporter.providers.nvidia.library import AbsentError, BrokenError, LostError, Nvml
from exporter.providers.nvidia.reading import Reading
from tests.unit.nvidia.fake import FakeNvml, Status, gpu

POWER, COUNTER, REFUSED, BROKEN = (186, 0), (83, 0), (82, 0), (230, 0)
ASKED = Fields({POWER: "power_watts", COUNTER: "energy", REFUSED: "temperature", BROKEN: "recovery"})
ANSWERS = {
    POWER: (1, 0, 0xFFFF_FFFF_0000_0007),  # the upper half of an unsigned int is whatever lay there
    COUNTER: (3, 0, 2**63 + 1),
    REFUSED: (0, 3, 0),
    BROKEN: (3, 17, 5),
}


class SharedObject:
    """libnvidia-ml.so.1, as ctypes gives it."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def nvmlDeviceGetFieldValues(self, handle: Any, count: int, room: Any) -> int:  # noqa: N802 -- NVML's name
        assert handle == "handle"
        fields = (pynvml.c_nvmlFieldValue_t * count).from_buffer(room)
        for field in fields:
            assert (field.timestamp, field.latencyUsec, field.valueType, field.nvmlReturn) == (0, 0, 0, 0)
            field.valueType, field.nvmlReturn, field.value.ullVal = ANSWERS[field.fieldId, field.scopeId]
            field.timestamp = 1
        return self.status


def binding(shared_object: Any) -> ModuleType:
    def function(name: str) -> Any:
        if not hasattr(shared_object, name):
            raise pynvml.NVMLError(13)
        return getattr(shared_object, name)

    module = ModuleType("pynvml")
    module.__dict__.update(NVMLError=pynvml.NVMLError, _nvmlGetFunctionPointer=function)
    return module


def test_values_are_those_of_the_shared_object_and_each_field_is_judged_alone() -> None:
    calls = []
    nvml = Nvml(binding(SharedObject()), lambda: calls.append(None))
    for _ in range(2):  # what was filled in before is not given again
        reading = Reading(nvml, "handle", lambda: None)
        assert reading.fields(ASKED) == {POWER: 7, COUNTER: 2**63 + 1}
        assert (reading.answered, reading.failed) == (True, ("recovery",))
    assert len(calls) == 2


@pytest.mark.parametrize(("status", "outcome"), [(3, AbsentError), (15, LostError), (17, BrokenError)])
def test_call_that_fails_as_a_whole_has_its_outcome(status: int, outcome: type[Exception]) -> None:
    with pytest.raises(outcome):
        Nvml(binding(SharedObject(status)), lambda: None).fields("handle", ASKED)


def test_driver_without_the_call_refuses() -> None:
    nvml = Nvml(binding(object()), lambda: None)
    with pytest.raises(AbsentError):
        nvml.fields("handle", ASKED)
    with pytest.raises(AbsentError):
        nvml.event("set", 1)


class Events:
    """The same, with a set that has one XID 79, then none, and then a status."""

    def __init__(self, last: int) -> None:
        self.statuses = [0, 10, last]

    def nvmlEventSetWait_v2(self, events: Any, room: Any, milliseconds: int) -> int:  # noqa: N802 -- NVML's name
        assert (events, milliseconds) == ("set", 1)
        data = pynvml.c_nvmlEventData_t.from_buffer(room)
        data.eventType, data.eventData, data.gpuInstanceId = 8, 79, 0xFFFFFFFF
        return self.statuses.pop(0)


@pytest.mark.parametrize(("status", "outcome"), [(13, AbsentError), (15, LostError), (17, BrokenError)])
def test_event_is_that_of_the_shared_object(status: int, outcome: type[Exception]) -> None:
    nvml = Nvml(binding(Events(status)), lambda: None)
    assert nvml.event("set", 1) == (8, 79)
    assert nvml.event("set", 1) is None
    with pytest.raises(outcome):
        nvml.event("set", 1)


def test_what_stands_for_the_binding_is_asked_through_its_function() -> None:
    card = gpu()
    card.fields |= {POWER: (1, 7), COUNTER: 2**63 + 1, BROKEN: Status(17)}
    library = FakeNvml(card)
    reading = Reading(Nvml(library, lambda: None), card, lambda: None)
    assert reading.fields(ASKED) == {POWER: 7, COUNTER: 2**63 + 1}
    assert reading.failed == ("recovery",)
    assert library.calls == ["nvmlDeviceGetFieldValues"]


def test_nothing_is_asked_for_without_fields() -> None:
    library = FakeNvml(gpu())
    assert Reading(Nvml(library, lambda: None), library.gpus[0], lambda: None).fields(Fields({})) == {}
    assert library.calls == []


def test_room_is_made_for_each_call() -> None:
    one, other = ASKED.room(), ASKED.room()
    ctypes.memset(one, 0xFF, len(one))
    assert other.raw == ASKED.room().raw != one.raw
