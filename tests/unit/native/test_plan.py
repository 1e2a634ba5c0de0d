"""Do the stand-ins for vendor libraries see the same machine as the simulated provider, to the last bit?"""

import ctypes
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.providers.simulated.catalogue import MODELS
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.native.plan import build, put_plan, write_plan

SECONDS = st.floats(0.01, 50.0).map(lambda x: round(x, 3))
TIMES = st.floats(0.0, 500.0) | st.integers(0, 5000).map(lambda n: n / 10) | st.floats(0.0, 1e8)

LOADS = st.one_of(
    st.just({"pattern": "idle"}),
    st.builds(lambda w: {"pattern": "constant", "watts": w}, st.integers(20, 900)),
    st.builds(
        lambda p, d, w, s: {
            "pattern": "square",
            "period_seconds": p,
            "duty": d,
            "watts": w,
            "low_watts": 50,
            "phase_seconds": s,
        },
        SECONDS,
        st.floats(0.1, 0.9),
        st.integers(60, 900),
        SECONDS,
    ),
    st.builds(
        lambda s, p: {"pattern": p, "seed": s}, st.integers(0, 9), st.sampled_from(["bursts", "training", "inference"])
    ),
    st.builds(
        lambda s, p: {
            "pattern": "phases",
            "phases": [{"pattern": "constant", "watts": 100, "seconds": s}, {"pattern": p}],
        },
        SECONDS,
        st.sampled_from(["square", "idle", "training"]),
    ),
    st.builds(
        lambda gaps, watts: {
            "pattern": "trace",
            "points": [[sum(gaps[:i]), watts[i]] for i in range(len(gaps))],
        },
        st.lists(SECONDS, min_size=1, max_size=8),
        st.lists(st.integers(0, 900), min_size=8, max_size=8),
    ),
)

EVENTS = st.lists(
    st.one_of(
        st.builds(lambda t: {"kind": "reset", "from_seconds": t}, SECONDS),
        st.builds(
            lambda k, t, e, x: {"kind": k, "from_seconds": t, "every_seconds": e + x, "lasting_seconds": e},
            st.sampled_from(["zero", "ones", "absent"]),
            SECONDS,
            SECONDS,
            SECONDS,
        ),
        st.builds(lambda t, d: {"kind": "swap", "device": 0, "from_seconds": t, "to_seconds": t + d}, SECONDS, SECONDS),
    ),
    max_size=4,
)

SPANS = st.lists(st.tuples(st.sampled_from(["frozen", "pausing", "scaled"]), SECONDS, SECONDS), max_size=3).map(
    lambda spans: [
        {"kind": kind, "from_seconds": start, "to_seconds": start + lasts}
        for (kind, gap, lasts), start in zip(
            spans, [100.0 * i + gap for i, (_, gap, _) in enumerate(spans)], strict=True
        )
    ]
)

FAULTS = st.lists(
    st.builds(
        lambda k, t, e, x: {"kind": k, "from_seconds": t, "every_seconds": e + x, "lasting_seconds": e},
        st.sampled_from(["garbage", "stuck", "ones", "lost", "removed"]),
        SECONDS,
        SECONDS,
        SECONDS,
    ),
    max_size=3,
)

PROCESSES = st.lists(
    st.one_of(
        st.builds(lambda t, m: {"from_seconds": t, "memory_used_bytes": m}, SECONDS, st.integers(0, 10**10)),
        st.builds(
            lambda n, m: {"count": n, "every_seconds": 20, "lasting_seconds": 5, "memory_used_bytes": m},
            st.integers(1, 7),
            st.integers(0, 10**10),
        ),
    ),
    max_size=3,
)

DEVICES = st.lists(
    st.builds(
        lambda model, load, kind, start, events, spans, faults, processes: {
            "model": model,
            "load": load,
            "accumulator": {"kind": kind, "start_joules": start, "events": events + spans},
            "faults": faults,
            "processes": processes,
        },
        st.sampled_from(sorted(MODELS)),
        LOADS,
        st.sampled_from(["honest", "low", "scaled", "absent", "zero", "ones"]),
        st.floats(0, 1e6),
        EVENTS,
        SPANS,
        FAULTS,
        PROCESSES,
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="session")
def plan_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The stand-ins read the variable at each call, as a vendor's process would."""
    path = tmp_path_factory.mktemp("plan") / "plan"
    before = os.environ.get("GPU_EXPORTER_PLAN")
    os.environ["GPU_EXPORTER_PLAN"] = str(path)
    yield path
    if before is None:
        del os.environ["GPU_EXPORTER_PLAN"]
    else:
        os.environ["GPU_EXPORTER_PLAN"] = before


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    c = ctypes.CDLL(str(build("plan")))
    number, pointer, text, out = ctypes.c_double, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_double)
    for name, result, arguments in (
        ("plan_refresh", ctypes.c_int, ()),
        ("plan_now", number, ()),
        ("plan_machine", pointer, ()),
        ("plan_count", ctypes.c_int, (text,)),
        ("plan_device_at", pointer, (text, ctypes.c_int)),
        ("plan_find", pointer, (text, text, text)),
        ("plan_properties", pointer, (pointer,)),
        ("plan_rows", ctypes.c_int, (pointer, text)),
        ("plan_row", pointer, (pointer, text, ctypes.c_int)),
        ("plan_text", text, (pointer, text)),
        ("plan_number", ctypes.c_int, (pointer, text, out)),
        ("plan_signal", ctypes.c_int, (pointer, text, number, out)),
        ("plan_energy", number, (pointer, number)),
        ("plan_power", number, (pointer, number, number, number)),
        ("plan_counter", ctypes.c_int, (pointer, number, out)),
        ("plan_module_counter", ctypes.c_int, (pointer, number, out)),
        ("plan_counter_time", number, (pointer, number)),
        ("plan_fault", ctypes.c_int, (pointer, text)),
    ):
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c


def scenario(devices: list[dict[str, object]], **rest: object) -> Machine:
    return Machine(load_scenario(json.dumps({"devices": devices, **rest})), epoch=0.0)


def device_of(c: ctypes.CDLL, machine: Machine, index: int) -> int:
    device = machine.devices[index]
    found = c.plan_find(device.vendor.encode(), b"uuid", device.texts["uuid"].encode())
    assert found
    return int(found)


def answer(function: "ctypes._FuncPointer", *arguments: object) -> float | None:  # type: ignore[name-defined] # of typeshed alone
    value = ctypes.c_double()
    return value.value if function(*arguments, ctypes.byref(value)) else None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(devices=DEVICES, times=st.lists(TIMES, min_size=1, max_size=6))
def test_c_and_python_see_the_same_to_the_last_bit(
    plan_path: Path, library: ctypes.CDLL, devices: list[dict[str, object]], times: list[float]
) -> None:
    for spec in devices:  # who is there is another test's matter
        spec["faults"] = [f for f in spec["faults"] if f["kind"] != "removed"]  # type: ignore[attr-defined, index] # made so above
    machine = scenario(devices)
    write_plan(plan_path, machine)
    assert library.plan_refresh() == 0
    for index, device in enumerate(machine.devices):
        handle = device_of(library, machine, index)
        names = {*device.numbers, *device.tracks, *device.readings}
        for t in times:
            for name in names:
                assert answer(library.plan_signal, handle, name.encode(), t) == device.signal(name, t), name
            assert library.plan_energy(handle, t) == device.energy(t)
            for window, period in ((1.0, 0.1), (0.025, 0.1), (0.1, 0.1), (0.0, 0.001), (0.0, 0.0)):
                assert library.plan_power(handle, t, window, period) == device.power(t, window, period)
            assert answer(library.plan_counter, handle, t) == machine.accumulated(device, t)
            assert answer(library.plan_module_counter, handle, t) == machine.accumulated(device, t, "module")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(devices=DEVICES)
def test_rows_and_removed_devices_are_those_of_python_at_this_moment(
    plan_path: Path, library: ctypes.CDLL, devices: list[dict[str, object]]
) -> None:
    machine = scenario(devices)
    write_plan(plan_path, machine)
    before = time.monotonic()
    assert library.plan_refresh() == 0
    after = time.monotonic()
    for vendor in ("nvidia", "amd"):
        mine = [d for d in machine.devices if d.vendor == vendor]
        gone = [{d.key for d in mine if d.suffers("removed", t)} for t in (before, after)]
        if gone[0] != gone[1]:
            continue  # it went while we looked
        there = [d for d in mine if d.key not in gone[0]]
        assert library.plan_count(vendor.encode()) == len(there)
        for index, device in enumerate(there):
            handle = library.plan_device_at(vendor.encode(), index)
            rows = device.rows_at("process", before)
            if rows != device.rows_at("process", after):
                continue
            assert library.plan_rows(handle, b"process") == len(rows)
            for i, row in enumerate(rows):
                there_row = library.plan_row(handle, b"process", i)
                assert library.plan_text(there_row, b"name") == row.texts["name"].encode()
                assert answer(library.plan_number, there_row, b"pid") == row.numbers["pid"]
                assert answer(library.plan_number, there_row, b"memory_used_bytes") == row.numbers.get(
                    "memory_used_bytes"
                )
            assert library.plan_row(handle, b"process", len(rows)) is None


def test_all_texts_arrive_with_any_bytes(plan_path: Path, library: ctypes.CDLL) -> None:
    name = 'spaces  inside, trailing ,\nlines, back\\slash, n\\n, "quotes", \u00e4'
    machine = scenario([{"model": "T4", "texts": {"name": name, "serial": " leading"}, "absent": ["board_name"]}])
    write_plan(plan_path, machine)
    assert library.plan_refresh() == 0
    properties = library.plan_properties(device_of(library, machine, 0))
    assert library.plan_text(properties, b"name") == name.encode()
    assert library.plan_text(properties, b"serial") == b" leading"
    assert library.plan_text(properties, b"board_name") is None
    assert library.plan_text(library.plan_machine(), b"driver_version") == machine.texts["driver_version"].encode()


def test_bytes_that_are_not_utf8_can_be_given(plan_path: Path, library: ctypes.CDLL) -> None:
    machine = Machine(load_scenario('devices: [{model: T4, texts: {name: "bad \\udcff byte"}}]'), epoch=0.0)
    write_plan(plan_path, machine)
    assert library.plan_refresh() == 0
    assert library.plan_text(library.plan_properties(device_of(library, machine, 0)), b"name") == b"bad \xff byte"


def test_a_replaced_plan_is_seen_and_energies_go_on(plan_path: Path, library: ctypes.CDLL) -> None:
    busy = scenario([{"model": "H100-SXM", "load": {"pattern": "constant", "watts": 600}}])
    write_plan(plan_path, busy)
    assert library.plan_refresh() == 0
    t = 1000.03
    joules, counted = (
        library.plan_energy(device_of(library, busy, 0), t),
        answer(library.plan_counter, device_of(library, busy, 0), t),
    )
    idle = scenario([{"model": "H100-SXM", "load": {"pattern": "constant", "watts": 100}}]).continued_from(busy, at=t)
    write_plan(plan_path, idle)
    assert library.plan_refresh() == 0
    handle = device_of(library, idle, 0)
    assert library.plan_energy(handle, t) == pytest.approx(joules, abs=1e-6)
    assert library.plan_energy(handle, t + 10) == pytest.approx(joules + 1000, abs=1e-6)
    assert answer(library.plan_counter, handle, t + 10) == pytest.approx(counted + 1000, abs=60)  # one update of 0.1 s
    assert library.plan_power(handle, t + 10, 1.0, 0.1) == pytest.approx(100)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plan 2\n",
        "something else\n",
        "plan 1\nnonsense\n",
        "plan 1\nnumbers 1\ndevice nvidia\nt power_watts 0 1 0 0 0 0 1 5\n\n1234567",
        "plan 1\nnumbers 99999999999999999999\ndevice nvidia\nt power_watts 0 1 0 0 0 0 1 5\n",
    ],
)
def test_a_file_that_is_no_plan_is_refused(plan_path: Path, library: ctypes.CDLL, text: str) -> None:
    put_plan(plan_path, text.encode())
    assert library.plan_refresh() == -1
    write_plan(plan_path, scenario([{"model": "T4"}]))
    assert library.plan_refresh() == 0
    assert library.plan_count(b"nvidia") == 1


def test_a_missing_plan_is_refused(plan_path: Path, library: ctypes.CDLL) -> None:
    plan_path.unlink(missing_ok=True)
    end = time.monotonic() + 30
    while library.plan_refresh() == 0:  # it looks at the file each millisecond
        assert time.monotonic() < end
    assert library.plan_refresh() == -1


def test_calls_fail_with_the_status_of_the_fault_that_means_them(plan_path: Path, library: ctypes.CDLL) -> None:
    machine = scenario(
        [
            {"model": "H100-SXM", "faults": [{"kind": "error", "call": "nvmlDeviceGetPower*", "status": 3}]},
            {"model": "H100-SXM", "faults": [{"kind": "lost"}]},
            {
                "model": "MI300X",
                "faults": [{"kind": "lost"}, {"kind": "error", "call": "amdsmi_x", "status": 9, "to_seconds": 1}],
            },
        ],
        faults=[{"kind": "error", "call": "nvmlInit_v2", "status": 9}],
    )
    write_plan(plan_path, machine)
    assert library.plan_refresh() == 0
    first, second, third = (device_of(library, machine, i) for i in range(3))
    assert library.plan_fault(None, b"nvmlInit_v2") == 9
    assert library.plan_fault(None, b"nvmlShutdown") == 0
    assert library.plan_fault(first, b"nvmlDeviceGetPowerUsage") == 3
    assert library.plan_fault(first, b"nvmlDeviceGetName") == 0
    assert library.plan_fault(second, b"nvmlDeviceGetName") == 15
    assert library.plan_fault(third, b"amdsmi_x") == 12  # the other fault's window is over
