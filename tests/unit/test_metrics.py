"""The tables keep the rules of the field, and no reading of the model is forgotten by them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from exporter.exposition.subjects import TABLES, Table, tables
from exporter.metrics import METRIC_NAMES, PROCESS_LABELS, Block, Kind, MetricSpec
from exporter.model import (
    Attribution,
    Device,
    DeviceSnapshot,
    EnergyAccount,
    Fabric,
    GpuState,
    LinkSample,
    LinkTotal,
    Owner,
    PartitionSample,
    ProcessSample,
    ProcessSeries,
    Sample,
    Snapshot,
    SourceStatus,
    Workload,
    WorkloadSnapshot,
    World,
)
from exporter.reference import CLOSED_LABELS

SPECS: tuple[MetricSpec[Any], ...] = tuple(spec for table in TABLES for spec in table.specs)
BASE_LABELS = {spec.name: table.labels for table in TABLES for spec in table.specs}
EACH_LINK = tables(PROCESS_LABELS, each_link=True)
every_row = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)

UNITS = {"watts", "joules", "seconds", "bytes", "celsius", "hertz", "ratio"}


def test_names_are_unique_and_all_known() -> None:
    assert [name for name, count in Counter(spec.name for spec in SPECS).items() if count > 1] == []
    assert {spec.name for spec in SPECS} == METRIC_NAMES


def test_each_block_has_families() -> None:
    assert {spec.block for spec in SPECS} == set(Block)


def test_names_do_not_clash_in_openmetrics() -> None:
    suffixes = {Kind.COUNTER: ("_total", "_created"), Kind.INFO: ("_info",), Kind.GAUGE: ()}
    taken: list[str] = []
    for spec in SPECS:
        own = suffixes[spec.kind]
        family = spec.name.removesuffix(own[0]) if own else spec.name
        taken += [family, *(family + suffix for suffix in own)]
    assert [name for name, count in Counter(taken).items() if count > 1] == []


@every_row
def test_the_name_is_valid_and_ours(spec: MetricSpec[Any]) -> None:
    assert re.fullmatch(r"gpu(_[a-z][a-z0-9]*)+", spec.name)


@every_row
def test_the_suffixes_say_unit_and_kind(spec: MetricSpec[Any]) -> None:
    assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER)
    assert spec.name.endswith("_info") == (spec.kind is Kind.INFO)
    stem = spec.name.removesuffix("_total")
    assert spec.unit in UNITS | {""}
    assert stem.endswith(f"_{spec.unit}") if spec.unit else not stem.endswith(tuple(f"_{unit}" for unit in UNITS))
    assert not (spec.unit and spec.kind is Kind.INFO)


@every_row
def test_the_help_is_one_sentence(spec: MetricSpec[Any]) -> None:
    assert re.fullmatch(r"[A-Z0-9][^\n\\]*[^.\s]\.", spec.help)
    assert ". " not in spec.help


@every_row
def test_labels_are_valid_few_and_do_not_collide(spec: MetricSpec[Any]) -> None:
    labels = (*BASE_LABELS[spec.name], *spec.labels)
    assert len(set(labels)) == len(labels)
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", label) for label in labels)
    # Set by the scraper or by its operator, or reserved for histograms and summaries.
    assert not set(labels) & {"instance", "job", "pod", "namespace", "container", "service", "endpoint", "node", "host"}
    assert not set(labels) & {"cluster", "region", "zone", "dc", "env", "stage", "owner", "customer", "type"}
    assert not set(labels) & {"le", "quantile"}


# What `promtool check metrics` objects to, beside what is tested above.
BASE_UNITS = "amperes bytes celsius grams joules kelvin meters metres seconds volts"
OTHER_UNITS = "minutes hours days weeks kelvins fahrenheit rankine inches yards miles bits calories pounds ounces"
PREFIXES = "pico nano micro milli centi deci deca hecto kilo kibi mega mibi giga gibi tera tebi peta pebi"
ABBREVIATIONS = "s ms us ns sec b kb mb gb tb pb m h d"


@every_row
def test_promtool_has_no_objection_to_the_name(spec: MetricSpec[Any]) -> None:
    words = spec.name.split("_")
    units = (*BASE_UNITS.split(), *OTHER_UNITS.split())
    assert not set(words) & set(OTHER_UNITS.split())
    assert not set(words) & {prefix + unit for prefix in PREFIXES.split() for unit in units}
    assert not set(words) & set(ABBREVIATIONS.split())
    assert not set(words) & {"gauge", "counter", "histogram", "summary", "untyped"}
    assert words[-1] not in {"count", "sum", "bucket"}


class Recorder:
    """A record that remembers which of its fields were read, by dotted name."""

    def __init__(self, record: msgspec.Struct, seen: set[str]) -> None:
        self._record, self._seen = record, seen

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._record, name)
        self._seen.add(f"{type(self._record).__name__}.{name}")
        if isinstance(value, msgspec.Struct):
            return Recorder(value, self._seen)
        if isinstance(value, tuple):
            return tuple(Recorder(item, self._seen) if isinstance(item, msgspec.Struct) else item for item in value)
        return value


def _fields(*records: type[msgspec.Struct]) -> set[str]:
    return {f"{record.__name__}.{name}" for record in records for name in record.__struct_fields__}


PARTITION = PartitionSample(partition="gi3", uuid="MIG-1", profile="1g.10gb", memory_used_bytes=1.0)
LINK = LinkSample(kind="nvlink", link="0", up=True, receive_bytes=1.0)
LINKS = LinkTotal(kind="nvlink", receive_bytes=1.0)
PROCESS = ProcessSeries(pid="7", name="python", memory_used_bytes=1.0)
WORKLOAD = Workload(key="pod/a/b/c", kind="pod", k8s_namespace="a", k8s_pod="b", k8s_container="c")
OWNER = Owner(pid=7, started=5, name="python", workload=WORKLOAD)
IDENTITY = Device(vendor="nvidia", key="GPU-1", firmware={"vbios": "96.00"})
DEVICE = DeviceSnapshot(
    gpu="nvidia0",
    provider="nvidia",
    device=IDENTITY,
    state=GpuState.OK,
    sample=Sample(
        device=IDENTITY,
        power_watts=1.0,
        partitions=(PARTITION,),
        links=(LINK,),
        recovery_action="gpu_reset",
        fabric=Fabric(state="completed", cluster_uuid="1f", clique=1),
    ),
    link_totals=(LINKS,),
    error_events={("xid", "79"): 1},
    error_event_timestamps={("xid", "79"): 1.0},
    process_series=(PROCESS,),
    process_owners=(OWNER,),
    workloads=(WorkloadSnapshot(workload=WORKLOAD, active_joules=0.5, idle_joules=0.25),),
    unattributed_joules=0.25,
    energy=EnergyAccount(
        total_joules=1.0,
        by_source_joules={"integrated": 1.0},
        hardware_joules=None,
        integrated_joules=1.0,
        qualified=False,
        divergence_ratio=None,
        covered_seconds=1.0,
        gap_seconds=0.0,
        faults={},
        start_timestamp=1.0,
    ),
)
WORLD = World(
    snapshots=(Snapshot(provider="nvidia", up=True, wanted=True, reason="", devices=(DEVICE,)),),
    versions={},
    attribution=Attribution(sources=(SourceStatus(source="kubelet", up=False, reason="no socket"),)),
)

NOT_SHOWN = {
    "World.versions": "says what to render",
    "Snapshot.provider": "a label of every series of the provider",
    "DeviceSnapshot.gpu": "a label of every series of the device",
    "DeviceSnapshot.sources": "of interest to who looks closely: told by the command doctor",
    "Device.key": "the uuid label",
    "Device.package": "decides whose sensor is read; no reading",
    "Sample.device": "identity is read from the snapshot, which has it when the device is lost",
    "Sample.lost": "becomes the state",
    "Sample.asleep": "becomes the state",
    "Sample.taken_at": "monotonic time means nothing outside; becomes last_sample_timestamp",
    "Sample.read_seconds": "summed over devices in Snapshot.sample_duration_seconds",
    "Sample.failed": "counted in Snapshot.read_failures",
    "Sample.rejected": "counted in Snapshot.rejected_readings",
    "Sample.energy_counter_joules": "accounted for by the ledger",
    "Sample.energy_counter_scope": "accounted for by the ledger",
    "Sample.energy_counter_range_joules": "accounted for by the ledger",
    "Sample.energy_counter_at": "a clock of the sensor's own: the ledger goes by the time of the read",
    "Sample.module_energy_counter_joules": "accounted for by the ledger of the module",
    "Sample.throttle_seconds": "accumulated in DeviceSnapshot.throttle_seconds",
    "Sample.sources": "of interest to who looks closely: told by the command doctor",
    "Sample.error_events": "counted in DeviceSnapshot.error_events",
    "Sample.error_event_kinds": "the fatal codes among DeviceSnapshot.error_events",
    "DeviceSnapshot.link_totals": "the subjects of a table",
    "LinkTotal.kind": "a label of every series of the links",
    "LinkSample.link": "a label of every series of the link",
    "PartitionSample.partition": "a label of every series of the partition",
    **dict.fromkeys(
        (f"ProcessSeries.{name}" for name in ("pid", "name", "user", "workload")),
        "a label of every series of the process, if it is chosen",
    ),
    **dict.fromkeys((f"ProcessSample.{name}" for name in ProcessSample.__struct_fields__), "becomes a ProcessSeries"),
    "Owner.pid": "a label of every series of the owner",
    "Owner.started": "becomes the match of process and owner",
    "Workload.key": "a label of every series of the workload",
    "Attribution.owners": "joined with the processes in DeviceSnapshot.process_owners",
    "Attribution.allocations": "joined with the devices in DeviceSnapshot.workloads",
    "DeviceSnapshot.process_series": "the subjects of a table",
    "DeviceSnapshot.process_owners": "the subjects of a table",
    "DeviceSnapshot.workloads": "the subjects of a table",
    "WorkloadSnapshot.start_timestamp": "when its counters were created",
    "Sample.processes": "chosen from in DeviceSnapshot.process_series",
    "Sample.partitions": "the subjects of a table",
    "World.snapshots": "the subjects of a table",
}


def test_every_field_of_the_model_is_read_by_a_row_or_has_a_reason_not_to_be() -> None:
    seen: set[str] = set()
    for table in (*TABLES, *EACH_LINK):
        for _, subject in table.subjects(WORLD):
            for spec in table.specs:
                spec.read(Recorder(subject, seen))
    every = _fields(World, Snapshot, DeviceSnapshot, Device, Sample, EnergyAccount, PartitionSample, ProcessSample)
    every |= _fields(
        Fabric, LinkSample, LinkTotal, ProcessSeries, Owner, Workload, WorkloadSnapshot, Attribution, SourceStatus
    )
    assert every - seen == set(NOT_SHOWN)


def test_a_provider_that_is_down_is_shown_only_where_it_is_wanted() -> None:
    (up,) = (spec for spec in SPECS if spec.name == "gpu_exporter_provider_up")
    down = Snapshot(provider="amd", up=False, wanted=False, reason="no library")
    assert up.read(down) is None
    assert up.read(msgspec.structs.replace(down, wanted=True)) == 0.0


def _readings(world: World, of: tuple[Table[Any], ...] = TABLES) -> Iterator[tuple[Table[Any], MetricSpec[Any], Any]]:
    for table in of:
        for base, subject in table.subjects(world):
            assert len(base) == len(table.labels)
            for spec in table.specs:
                yield table, spec, spec.read(subject)


@pytest.mark.parametrize("of", [TABLES, EACH_LINK], ids=["links together", "links one by one"])
@pytest.mark.parametrize("world", [WORLD, World(snapshots=(), versions={})], ids=["one device", "empty"])
def test_each_reading_has_the_shape_that_its_labels_ask_for(world: World, of: tuple[Table[Any], ...]) -> None:
    for _, spec, reading in _readings(world, of):
        if not spec.labels:
            assert reading is None or isinstance(reading, float | int), spec.name
            continue
        assert isinstance(reading, Mapping), spec.name
        for key in reading:
            assert isinstance(key, str) if len(spec.labels) == 1 else len(key) == len(spec.labels), spec.name
        if spec.kind is Kind.INFO:
            assert set(reading.values()) <= {1.0}


CLOSED_WORDS = {
    "sensor",
    "domain",
    "engine",
    "class",
    "state",
    "source",
    "fault",
    "cause",
    "group",
    "part",
    "action",
    "error",
}


def test_labels_with_closed_words_have_a_closed_list() -> None:
    named = {(spec.name, label) for spec in SPECS for label in spec.labels if label in CLOSED_WORDS}
    throttling = {("gpu_throttled", "reason"), ("gpu_throttle_seconds_total", "reason")}
    kinds = {("gpu_workload_info", "kind")}
    kinds |= {(name, "kind") for name in ("gpu_error_events_total", "gpu_error_event_last_timestamp_seconds")}
    assert set(CLOSED_LABELS) == named | throttling | kinds


@pytest.mark.parametrize("values", CLOSED_LABELS.values(), ids=map(".".join, CLOSED_LABELS))
def test_closed_lists_are_words_without_repetition(values: tuple[str, ...]) -> None:
    assert len(set(values)) == len(values) > 0
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", value) for value in values)


@pytest.mark.parametrize("name", ["gpu_state", "gpu_energy_faults_total", "gpu_exporter_worker_restarts_total"])
def test_sets_that_the_table_fills_show_each_of_their_values(name: str) -> None:
    (reading,) = (reading for _, spec, reading in _readings(WORLD) if spec.name == name)
    (allowed,) = (values for (family, _), values in CLOSED_LABELS.items() if family == name)
    assert set(reading) == set(allowed)
    assert 0.0 in reading.values()


def test_only_one_state_is_set() -> None:
    (state,) = (spec for spec in SPECS if spec.name == "gpu_state")
    (up,) = (spec for spec in SPECS if spec.name == "gpu_up")
    for value in GpuState:
        shown = msgspec.structs.replace(DEVICE, state=value)
        assert {name for name, on in state.read(shown).items() if on} == {value.value}
        assert up.read(shown) == float(value in {GpuState.OK, GpuState.ASLEEP})
