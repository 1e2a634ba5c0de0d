"""The rows of the fault matrix: what goes wrong, how that shows, and what it may take down."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from exporter.providers.simulated.device import Fault
from exporter.providers.simulated.physics import Window
from tests.integration.fault_bench import Bench, SimulatedBench
from tests.integration.fault_page import Page
from tests.native.plan import NATIVE

Act = Callable[[Bench], None]
Symptom = Callable[[Bench, Page], bool]
States = Mapping[int, tuple[str, ...]]
ALWAYS = Window(0.0, float("inf"), 0.0, 0.0)
GPUS = (0, 1, 2)
NEWCOMER = 3
SUFFERER = 1
NONE: States = {}
HUNG: States = {SUFFERER: ("hung",)}
LOST: States = {SUFFERER: ("lost",)}
STALE: States = {SUFFERER: ("stale",)}
ASLEEP: States = {SUFFERER: ("asleep",)}

LOAD = {"nvidia": "nvmlDeviceGetUtilizationRates", "amd": "amdsmi_get_gpu_activity"}
LIST = {"nvidia": "nvmlDeviceGetComputeRunningProcesses_v3", "amd": "amdsmi_get_gpu_process_list"}
INIT = {"nvidia": "nvmlInitWithFlags", "amd": "amdsmi_init"}
SHUTDOWN = {"nvidia": "nvmlShutdown", "amd": "amdsmi_shut_down"}
FIVE_A_SECOND = {"nvidia": "nvmlDeviceGetClockInfo", "amd": "amdsmi_get_clock_info"}
"""Calls that are made about so often with the intervals of the bench: what leaks has to pass the limit, and not twice
the limit, between two looks of the supervisor."""
OFTEN = {
    "nvidia": (
        *("nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetEnforcedPowerLimit"),
        *("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperature*"),
    ),
    "amd": (
        *("amdsmi_get_power_info", "amdsmi_get_energy_count", "amdsmi_get_gpu_activity"),
        *("amdsmi_get_gpu_vram_usage", "amdsmi_get_temp_metric", "amdsmi_get_clock_info"),
    ),
}
"""Calls of which each failure is counted."""
GONE = {"nvidia": 9, "amd": 34}
BROKEN = {"nvidia": 17, "amd": 16}
"""Statuses: the driver is gone, and an error that says nothing of the GPU."""
# All but handles and identity.
NVIDIA_READINGS = [
    f"nvmlDeviceGet{rest}*"
    for rest in ("C", "D", "E", "F", "G", "J", "M", "O", "Pcie", "Pe", "Po", "R", "S", "T", "Ut")
]
# All but the address, which the library knows without the driver.
AMD_FILES = [
    *(f"amdsmi_get_gpu_{rest}*" for rest in ("a", "b", "co", "device_u", "dr", "f", "k", "m", "p", "t", "v")),
    *(f"amdsmi_get_{rest}*" for rest in ("c", "e", "po", "pc", "t")),
]


def always(_bench: Bench, _page: Page) -> bool:
    return True


def healed(bench: Bench) -> None:
    bench.put(bench.machine())


@dataclass(frozen=True, eq=False)
class Row:
    name: str
    vendor: str
    inject: Act
    symptom: Symptom
    down: States = field(default_factory=dict)
    """States that a device is to be seen in, besides ok; devices that are not here stay ok."""
    heal: Act = healed
    hold: float = 1.0
    """Seconds for which the fault goes on after it shows."""
    within: float = 15.0
    """Seconds after which all is to be well again once the fault is over."""
    then: Symptom = always
    """What more is to be seen on the page once the fault is over."""
    devices: tuple[int, ...] = GPUS
    """That are there in the end."""
    unread: tuple[int, ...] = ()
    """Devices that are up, and whose readings are the fault."""
    shares: bool = False
    """It ends no worker, so that it can come after another fault of that kind in one daemon."""
    scenario: tuple[str, float] | None = None
    """Of the simulated provider: the fault and its seconds."""


def all_in(*states: str) -> States:
    return dict.fromkeys(GPUS, states)


def faults(*specs: str, machine: str = "") -> Act:
    return lambda bench: bench.put(bench.faulty(*specs, machine=machine))


def shows(device: int, state: str) -> Symptom:
    return lambda _, page: page.state(device) == state


def all_show(*states: str) -> Symptom:
    return lambda _, page: all(page.state(device) in states for device in GPUS)


def restarted(cause: str, times: int = 1) -> Symptom:
    return lambda bench, page: (
        page.sum("gpu_exporter_worker_restarts_total", provider=bench.provider, cause=cause) >= times
    )


def ended(times: int) -> Symptom:
    return lambda bench, _: bench.seen.restarts >= times


def reason(*words: str) -> Symptom:
    def said(bench: Bench, page: Page) -> bool:
        told = page.labels("gpu_exporter_provider_info", provider=bench.provider).get("reason", "")
        return all(word in told for word in words)

    return said


def logged(words: str) -> Symptom:
    return lambda bench, _: words in bench.daemon.log


def reloaded(bench: Bench, page: Page) -> bool:
    """Tell whether the new driver's version and indices are shown, and the labels stayed with their GPUs."""
    info = [page.labels("gpu_info", device) for device in GPUS]
    return (
        {labels.get("driver_version") for labels in info} == {"999.1"}
        and [labels.get("index") for labels in info] == ["2", "1", "0"]
        and [labels.get("gpu") for labels in info] == [f"{bench.vendor}{number}" for number in GPUS]
    )


def both(*symptoms: Symptom) -> Symptom:
    return lambda bench, page: all(symptom(bench, page) for symptom in symptoms)


def counted(series: str, least: int) -> Symptom:
    return lambda bench, page: page.sum(series, provider=bench.provider) >= least


@cache
def symbols(vendor: str) -> tuple[str, ...]:
    """Return every function of the vendor's library that the provider calls, which are those that the stand-in has."""
    stem, pattern = (
        ("nvidia", r"\bnvml[A-Z]\w+") if vendor == "nvidia" else ("amdsmi", r"\bamdsmi_(?:get|init|shut)\w+")
    )
    text = "".join(source.read_text() for source in sorted(NATIVE.glob(f"{stem}*.c")))
    return tuple(sorted(set(re.findall(pattern, text))))


def calls_fail(bench: Bench) -> None:
    """Have one call after the other fail, each until the page says so."""
    for symbol in OFTEN[bench.vendor]:
        before = failures(bench, bench.scrape())
        bench.put(bench.faulty(f"{{kind: error, call: {symbol}, status: {BROKEN[bench.vendor]}}}"))
        bench.wait(lambda page, before=before: failures(bench, page) > before, 10.0)  # type: ignore[misc] # its default


def failures(bench: Bench, page: Page) -> float:
    return page.sum("gpu_exporter_read_failures_total", provider=bench.provider)


def garbage(bench: Bench) -> None:
    call = {"nvidia": "nvmlDevice*", "amd": "amdsmi_get_*"}[bench.vendor]
    for bits in (0, 2**64 - 1, 2**47, 2**63 - 16, 0x7FF8000000000000, 1, 2**31):
        bench.put(bench.with_faults(Fault("raw", ALWAYS, call, raw=bits)))
        bench.hold(0.6)


def fall_asleep(device: int, fault: str = "") -> Act:
    def act(bench: Bench) -> None:
        bench.suspend(device, asleep=True)
        # The stand-in aborts when it is asked about a GPU that sleeps. Once this is shown no such read is under way.
        bench.wait(lambda page: page.state(device) == "asleep", 10.0)
        more = {SUFFERER: f"faults: [{fault}]"} if fault else {}
        bench.put(bench.machine(extra={**more, device: "faults: [{kind: asleep}]"}))

    return act


def wake_up(device: int) -> Act:
    def act(bench: Bench) -> None:
        healed(bench)
        bench.suspend(device, asleep=False)

    return act


def of_either(vendor: str) -> Iterator[Row]:
    """Yield faults that each vendor's library can have."""
    load, init = LOAD[vendor], INIT[vendor]
    gone = f"{{kind: error, call: {load}, status: {GONE[vendor]}}}"
    for kind in ("crash", "abort", "exit") if vendor == "nvidia" else ("crash", "exit"):
        act = faults(f"{{kind: {kind}, call: {load}}}")
        yield Row(f"{kind} in a device's call", vendor, act, restarted("crash"), hold=0.0)
    for kind in ("crash", "exit") if vendor == "nvidia" else ("abort",):
        act = faults(machine=f"{gone}, {{kind: {kind}, call: {init}}}")
        symptom = both(restarted("crash"), all_show("stale"))
        yield Row(f"{kind} in init", vendor, act, symptom, down=all_in("stale"), hold=0.0)
    act = faults(machine=f"{gone}, {{kind: crash, call: {SHUTDOWN[vendor]}}}")
    yield Row("crash in shutdown", vendor, act, ended(1), hold=0.0)
    act = faults(f"{{kind: crash, call: {load}}}")
    yield Row("crash in each call of one device", vendor, act, shows(1, "hung"), down=HUNG, hold=3.0)
    act = faults(f"{{kind: hang, call: {load}}}")
    yield Row("hang in a device's call", vendor, act, shows(1, "hung"), down=HUNG, hold=4.0)
    act = faults(f"{{kind: hang, call: {LIST[vendor]}}}")
    yield Row("hang in the process list", vendor, act, shows(1, "hung"), down=HUNG, hold=4.0)
    act = faults(machine=f"{gone}, {{kind: hang, call: {init}}}")
    yield Row("hang in init", vendor, act, all_show("hung"), down=all_in("hung", "stale"), hold=0.0)
    act = faults(machine=f"{gone}, {{kind: hang, call: {SHUTDOWN[vendor]}}}")
    yield Row("hang in shutdown", vendor, act, ended(1), hold=1.0)
    act = faults(machine=f"{{kind: error, status: {GONE[vendor]}}}")
    if vendor == "amd":
        act = lambda bench: bench.put(bench.machine(head="driver_loaded: 0"))  # noqa: E731 -- as its neighbours
    yield Row(
        "driver unloaded, then another with other indices",
        vendor,
        act,
        both(reason("not loaded"), all_show("stale")),
        down=all_in("stale"),
        heal=lambda bench: bench.put(bench.machine(head='driver_version: "999.1"', order=(2, 1, 0))),
        then=reloaded,
    )
    leak = f"{{kind: leak_descriptors, call: {FIVE_A_SECOND[vendor]}}}"
    yield Row("descriptors leak in each call", vendor, faults(leak), restarted("recycle"), hold=0.0)


def sharing(vendor: str) -> Iterator[Row]:
    """Yield faults that end no worker."""
    flood = faults(f"{{kind: flood, call: {LOAD[vendor]}, bytes: 500000}}")
    yield Row("flood on both outputs", vendor, flood, logged("the library is talkative"), hold=3.0, shares=True)
    yield Row("GPU lost, and back", vendor, faults("{kind: lost}"), shows(1, "lost"), down=LOST, shares=True)
    yield Row(
        "asleep, and awake",
        vendor,
        fall_asleep(SUFFERER),
        shows(1, "asleep"),
        down=ASLEEP,
        heal=wake_up(SUFFERER),
        hold=2.0,
        shares=True,
    )
    failed = counted("gpu_exporter_read_failures_total", len(OFTEN[vendor]))
    yield Row("calls fail, one after the other", vendor, calls_fail, failed, unread=(1,), hold=0.0, shares=True)
    rejections = counted("gpu_exporter_rejected_readings_total", 20)
    yield Row("garbage in every number", vendor, garbage, rejections, unread=(1,), hold=0.0, shares=True)
    split = {"nvidia": "{profile: 1g.10gb}, {profile: 2g.20gb}", "amd": ", ".join(["{}"] * 8)}[vendor]
    yield Row(
        {"nvidia": "MIG switched on and off", "amd": "partitioned (SPX to CPX), and back"}[vendor],
        vendor,
        lambda bench: bench.put(
            bench.machine(
                texts={1: ", compute_partition: CPX"} if vendor == "amd" else {}, extra={1: f"partitions: [{split}]"}
            )
        ),
        lambda _, page: bool(page.labels("gpu_partition_info", 1)),
        hold=1.0,
        then=lambda _, page: not page.labels("gpu_partition_info", 1),
        shares=True,
    )


def last(vendor: str) -> Iterator[Row]:
    """Yield what leaves a device behind, so that nothing can come after it in one daemon."""
    yield Row(
        "GPU removed and another added",
        vendor,
        lambda bench: bench.put(bench.machine(order=(0, 2, 3))),
        lambda _, page: page.state(1) == "lost" and page.state(NEWCOMER) == "ok",
        down=LOST,
        heal=lambda bench: bench.put(bench.machine(order=(0, 1, 2, 3))),
        devices=(*GPUS, NEWCOMER),
        shares=True,
    )


def combined(vendor: str) -> Iterator[Row]:
    load = LOAD[vendor]
    hang, leak = f"{{kind: hang, call: {load}}}", f"{{kind: leak_descriptors, call: {FIVE_A_SECOND[vendor]}}}"
    flood, crash = f"{{kind: flood, call: {load}, bytes: 500000}}", f"{{kind: crash, call: {load}}}"
    yield Row(
        "one device hangs, another is lost",
        vendor,
        lambda bench: bench.put(bench.machine(extra={1: f"faults: [{hang}]", 2: "faults: [{kind: lost}]"})),
        both(shows(1, "hung"), shows(2, "lost")),
        down={1: ("hung",), 2: ("lost",)},
        hold=3.0,
    )
    yield Row(
        "one device hangs, another sleeps",
        vendor,
        fall_asleep(2, hang),
        both(shows(1, "hung"), shows(2, "asleep")),
        down={1: ("hung",), 2: ("asleep",)},
        heal=wake_up(2),
        hold=3.0,
    )
    talks = logged("the library is talkative")
    yield Row("crash in a flood", vendor, faults(flood, crash), both(restarted("crash"), talks), hold=0.0)
    yield Row("hang after a leak", vendor, faults(leak, hang), shows(1, "hung"), down=HUNG, hold=3.0)


def of_nvidia() -> Iterator[Row]:
    init = INIT["nvidia"]
    yield Row(
        "crash in every call, for long",
        "nvidia",
        faults(machine=f"{{kind: crash, call: {LOAD['nvidia']}}}, {{kind: crash, call: {init}}}"),
        both(restarted("crash", 3), reason("unusable"), all_show("stale")),
        down=all_in("stale"),
        hold=0.0,
    )
    leak = faults(f"{{kind: leak_memory, call: {FIVE_A_SECOND['nvidia']}, bytes: 1000000}}")
    yield Row("memory leaks in each call", "nvidia", leak, restarted("recycle"), hold=0.0)
    yield Row(
        "library and module differ in version",
        "nvidia",
        faults(machine="{kind: error, status: 18}"),
        both(reason("differ in version"), all_show("stale")),
        down=all_in("stale"),
    )
    yield Row(
        "permissions withdrawn: no permission",
        "nvidia",
        faults(machine="{kind: error, status: 4}"),
        all_show("lost"),
        down=all_in("lost", "stale"),
    )
    yield Row(
        "permissions withdrawn: unknown error",
        "nvidia",
        faults(machine="{kind: error, status: 999}"),
        reason("a container that lost its devices must be restarted"),
        down=all_in("lost", "stale"),
    )


def lost_as_unknown() -> Row:
    act = faults("{kind: lost, status: 999}")
    return Row("GPU lost (unknown error), and back", "nvidia", act, shows(1, "lost"), down=LOST, shares=True)


def all_fails(vendor: str, name: str, status: int) -> Row:
    """Return the fault of a device that gives nothing but errors, which do not say that it is gone."""
    calls = {"nvidia": NVIDIA_READINGS, "amd": AMD_FILES}[vendor]
    act = faults(*(f"{{kind: error, call: '{call}', status: {status}}}" for call in calls))
    symptom = both(shows(1, "stale"), counted("gpu_exporter_read_failures_total", 100))
    return Row(name, vendor, act, symptom, down=STALE)


def of_simulated() -> Iterator[Row]:
    for kind in ("crash", "abort", "exit"):
        spec = (f"kind: {kind}, call: memory", 0.9)
        yield _simulated(0, f"{kind} in a device's call", spec, restarted("crash"))
    spec = ("kind: hang, call: memory", 7.0)
    yield _simulated(0, "hang in a device's call", spec, shows(1, "hung"), HUNG)
    yield _simulated(
        0, "descriptors leak in each call", ("kind: leak_descriptors, call: limits", 26.0), restarted("recycle")
    )
    sharing = (
        ("GPU lost, and back", ("kind: lost", 2.0), shows(1, "lost"), LOST),
        ("GPU removed, and back", ("kind: removed", 2.0), shows(1, "lost"), LOST),
        ("asleep, and awake", ("kind: asleep", 2.0), shows(1, "asleep"), ASLEEP),
        ("garbage in readings", ("kind: garbage", 2.0), counted("gpu_exporter_rejected_readings_total", 5), NONE),
        (
            "flood on both outputs",
            ("kind: flood, call: memory, bytes: 500000", 3.0),
            logged("the simulated library is talkative"),
            NONE,
        ),
        (
            "every call fails",
            ("kind: error, status: 5", 2.0),
            counted("gpu_exporter_read_failures_total", 5),
            NONE,
        ),
    )
    for number, (name, spec, symptom, down) in enumerate(sharing):
        unread = (1,) if name.startswith(("garbage", "every")) else ()
        yield _simulated(number, name, spec, symptom, down, unread=unread, shares=True)


def _simulated(
    number: int,
    name: str,
    spec: tuple[str, float],
    symptom: Symptom,
    down: States = NONE,
    *,
    unread: tuple[int, ...] = (),
    shares: bool = False,
) -> Row:
    """`number`: among the faults of one daemon."""

    def begin(bench: Bench) -> None:
        assert isinstance(bench, SimulatedBench)
        bench.await_fault(number)

    def end(bench: Bench) -> None:
        assert isinstance(bench, SimulatedBench)
        bench.await_end(number)

    return Row(name, "simulated", begin, symptom, down, heal=end, hold=0.0, unread=unread, shares=shares, scenario=spec)


ROWS = (
    *of_either("nvidia"),
    *of_nvidia(),
    *combined("nvidia"),
    *sharing("nvidia"),
    lost_as_unknown(),
    all_fails("nvidia", "every call fails", BROKEN["nvidia"]),
    *last("nvidia"),
    *of_either("amd"),
    *list(combined("amd"))[:1],
    *sharing("amd"),
    all_fails("amd", "every call fails", BROKEN["amd"]),
    all_fails("amd", "permissions withdrawn: files", 14),
    *last("amd"),
    *of_simulated(),
)
