"""Are logs that people have read for what they say: both vendors', with and without units, cut anywhere, or odd?"""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.measure.evaluate import evaluate
from exporter.measure.logs import Log, LogError, read_log, run_of
from exporter.measure.logs.cells import moment, number
from exporter.measure.results import WindowResult
from exporter.measure.samples import HEADER, row
from exporter.model import GpuState
from tests.unit.measure.test_samples import SOME

START = datetime(2026, 11, 30, 15, 0, 0, tzinfo=UTC)

NVIDIA_HEAD = (
    "timestamp, index, uuid, name, power.draw [W], power.limit [W], utilization.gpu [%], temperature.gpu, "
    "clocks.current.sm [MHz]"
)
UUIDS = ("GPU-5d0f1c22-1111-2222-3333-444455556666", "GPU-77aa1c22-1111-2222-3333-444455556666")


def nvidia(seconds: int = 30, *, units: bool = True, head: str = NVIDIA_HEAD, newline: str = "\n") -> bytes:
    w, p, mhz = (" W", " %", " MHz") if units else ("", "", "")
    lines = [head]
    for t in range(seconds):
        for index, uuid in enumerate(UUIDS):
            time = (START + timedelta(seconds=t, milliseconds=120 + 4 * index)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            watts = f"{400 + 100 * index + t % 2:.2f}{w}"
            if (t, index) == (4, 1):
                watts = "[N/A]"
            clock = "[Unknown Error]" if t == 9 else f"1980{mhz}"
            lines.append(
                f"{time}, {index}, {uuid}, NVIDIA H100 80GB HBM3, {watts}, 700.00{w}, {90 + t % 3}{p}, 54, {clock}"
            )
    return "".join(f"{line}{newline}" for line in lines).encode()


AMD_HEAD = (
    "timestamp,gpu,gfx_activity,umc_activity,mm_activity,vcn_activity,jpeg_activity,gfx_busy_inst_xcp_0,"
    "{power},gfx_voltage,soc_voltage,mem_voltage,throttle_status,power_management,gfx_0_clk,edge,hotspot,mem"
)


def amd(
    seconds: int = 30, *, power: str = "socket_power", repeated: bool = False, preamble: bool = True, unit: str = ""
) -> bytes:
    head = AMD_HEAD.format(power=power)
    lines = ["'CTRL' + 'C' to stop watching output:"] if preamble else []
    lines += [] if repeated else [head]
    for t in range(seconds):
        if repeated:
            lines += ["", head] if t else [head]
        for gpu in range(2):
            watts = "N/A" if (t, gpu) == (4, 1) else f"{700 + 100 * gpu + t % 2}{unit}"
            lines.append(
                f"{int(START.timestamp()) + t},{gpu},98,40,N/A,\"['N/A', 'N/A']\",\"['N/A', 'N/A']\",\"[98, 97]\","
                f"{watts},N/A,N/A,N/A,UNTHROTTLED,ENABLED,2100,N/A,61,48"
            )
    return "".join(f"{line}\n" for line in lines).encode()


def energy(seconds: int = 90, fraction: str = "") -> bytes:
    """As amd-smi metric --power --energy prints it: the accumulator in joules beside the power."""
    lines = ["'CTRL' + 'C' to stop watching output:"]
    for t in range(seconds):
        lines += ["timestamp,gpu,socket_power,power_management,total_energy_consumption"]
        at = f"{int(START.timestamp()) + t}{fraction}"
        lines += [f"{at},{gpu},500,ENABLED,{20909145.914 + 500 * t:.3f}" for gpu in range(2)]
        lines += [""]
    return "".join(f"{line}\n" for line in lines).encode()


def read(content: bytes) -> Log:
    return read_log(content, zone=UTC)


def measured(content: bytes, start: float, end: float) -> WindowResult:
    return evaluate(run_of(read(content), START.timestamp() + start, START.timestamp() + end)).windows[0]


LOGS = {
    "nvidia-smi with units": nvidia(8),
    "nvidia-smi without units": nvidia(8, units=False),
    "nvidia-smi on another system": nvidia(8, newline="\r\n"),
    "amd-smi": amd(8),
    "amd-smi that repeats its head": amd(8, repeated=True),
    "amd-smi with units": amd(8, unit=" W"),
    "amd-smi with energy": energy(8),
    "ours": (HEADER + "".join(map(row, SOME))).encode(),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_cut_anywhere_has_the_whole_rows_and_no_half_one(kind: str) -> None:
    content = LOGS[kind]
    whole = read(content)
    assert not whole.truncated
    assert len(whole.points) >= 10
    head = content.index(b"\n", content.index(b"power")) + 1
    rows = 0
    for cut in range(len(content)):
        part = content[:cut]
        found = read_or_refuse(part)
        if found is None:
            assert cut < head
            continue
        assert found.points == whole.points[: len(found.points)]
        assert found.truncated == (not part.endswith(b"\n") or cut < head)
        assert len(found.points) >= rows
        if len(found.points) > rows:
            assert part.endswith(b"\n"), "a row counts with its end"
            run = run_of(found, START.timestamp() + 1.5, START.timestamp() + 4.5)
            assert evaluate(run).windows[0].seconds is not None
        rows = len(found.points)
    assert rows == len(whole.points) - (0 if kind == "amd-smi with energy" else 1)


def read_or_refuse(content: bytes) -> Log | None:
    try:
        return read(content)
    except LogError as error:
        refusal = str(error)
    assert refusal
    assert "\n" not in refusal
    return None


@pytest.mark.parametrize("units", [True, False])
def test_a_log_of_nvidia_smi(units: bool) -> None:
    log = read(nvidia(units=units))
    assert log.tool == "nvidia-smi"
    assert [gpu.gpu for gpu in log.gpus] == list(UUIDS)
    assert [gpu.name for gpu in log.gpus] == ["nvidia0", "nvidia1"]
    assert log.gpus[0].model == "NVIDIA H100 80GB HBM3"
    assert log.gpus[0].limit_watts == 700.0
    first = log.points[0]
    assert (first.at, first.power_watts, first.utilization_ratio) == (START.timestamp() + 0.12, 400.0, 0.9)
    assert first.temperature_celsius == 54.0
    missing = [point for point in log.points if point.power_watts is None]
    assert len(missing) == 1
    result = measured(nvidia(units=units), 5.5, 25.5)
    assert result.power_valid
    assert result.joules == pytest.approx(20 * (400.5 + 500.5), rel=1e-3)


def test_times_of_nvidia_smi_are_those_of_the_zone() -> None:
    there = timezone(timedelta(hours=-8))
    log = read_log(nvidia(), zone=there)
    assert log.points[0].at == START.timestamp() + 0.12 + 8 * 3600


def test_the_mean_over_a_second_is_preferred_and_its_window_known() -> None:
    head = "timestamp, index, power.draw [W], power.draw.average [W], power.draw.instant [W]"
    rows = "".join(f"2026/11/30 15:00:{t:02}.000, 0, 111.00 W, 222.00 W, 333.00 W\n" for t in range(10))
    log = read(f"{head}\n{rows}".encode())
    assert log.points[0].power_watts == 222.0
    assert (log.gpus[0].power_kind, log.gpus[0].power_window_seconds) == ("average", 1.0)
    old = read(f"{head}\n{rows.replace('222.00 W', '[N/A]')}".encode())
    assert old.points[0].power_watts == 111.0
    assert old.gpus[0].power_window_seconds is None


def test_an_average_and_an_instant_column_are_known_apart() -> None:
    log = read(b"timestamp, index, power.draw.instant [W]\n2026/11/30 15:00:00.000, 0, 333.00 W\n")
    assert (log.points[0].power_watts, log.gpus[0].power_kind, log.gpus[0].power_window_seconds) == (
        333.0,
        "instant",
        0.0,
    )


def test_an_unknown_error_is_no_reading_and_a_stuck_one_beside_it_is_seen() -> None:
    """As a card was seen to do for 700 s: one value, clocks unknown, and the temperature goes up."""
    lines = ["timestamp, index, power.draw [W], temperature.gpu, clocks.current.sm [MHz]"]
    for t in range(700):
        time = (START + timedelta(seconds=t)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        lines.append(f"{time}, 0, 46.19 W, {32 + t * 31 // 700}, [Unknown Error]")
    result = measured(("\n".join(lines) + "\n").encode(), 10, 600)
    assert [reason.reason for reason in result.reasons] == ["power_frozen"]


def test_a_gpu_that_nvidia_smi_calls_lost_makes_the_window_invalid() -> None:
    content = nvidia().replace(b"500.00 W", b"[GPU is lost]")
    result = measured(content, 5.5, 25.5)
    assert "lost" in {reason.reason for reason in result.reasons}
    after = [p for p in read(content).points if p.gpu == UUIDS[1] and p.at > START.timestamp() + 6]
    assert GpuState.LOST in {p.state for p in after}


def test_messages_and_repeated_heads_between_the_rows_are_left_out_and_told() -> None:
    lines = nvidia().splitlines(keepends=True)
    lines[7:7] = [b"Unable to determine the device handle for GPU0000:41:00.0: Unknown Error\n", lines[0]]
    log = read(b"".join(lines))
    assert log.points == read(nvidia()).points
    assert len(log.notes) == 1
    assert "Unable to determine the device handle" in log.notes[0]


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize("unit", ["", " W"])
def test_a_log_of_amd_smi(repeated: bool, unit: str) -> None:
    content = amd(repeated=repeated, unit=unit)
    log = read(content)
    assert log.tool == "amd-smi"
    assert [gpu.gpu for gpu in log.gpus] == ["amd0", "amd1"]
    first = log.points[0]
    assert (first.at, first.power_watts, first.utilization_ratio) == (START.timestamp(), 700.0, 0.98)
    assert first.temperature_celsius == 61.0, "of the hotspot, not of the memory"
    assert log.resolution_seconds == 1.0
    result = measured(content, 5.5, 25.5)
    assert result.power_valid
    assert result.joules == pytest.approx(20 * (700.5 + 800.5), rel=1e-3)


@pytest.mark.parametrize(
    "power", ["socket_power", "current_socket_power", "current_power", "average_socket_power", "power_usage"]
)
def test_power_is_found_under_every_name_it_had(power: str) -> None:
    log = read(amd(power=power))
    assert log.points[0].power_watts == 700.0
    assert log.gpus[0].power_kind == ("average" if power == "average_socket_power" else None)


def test_power_management_is_not_taken_for_power() -> None:
    content = amd().replace(b"socket_power", b"some_other_thing")
    with pytest.raises(LogError) as caught:
        read(content)
    assert "socket_power" in str(caught.value)


def test_records_with_value_and_unit_are_numbers() -> None:
    content = amd().replace(b",700,", b",\"{'value': 700, 'unit': 'W'}\",")
    assert read(content).points[0].power_watts == 700.0


def test_the_accumulator_of_amd_smi_is_read_beside_power() -> None:
    # Instant power once a second needs five minutes to vouch for an accumulator.
    result = measured(energy(400), 10, 380)
    assert result.power_valid
    assert [gpu.source for gpu in result.gpus] == ["hardware", "hardware"]
    assert result.joules == pytest.approx(2 * 500 * 370)
    assert result.cross_check is not None
    assert result.cross_check.divergence_ratio == pytest.approx(0.0, abs=1e-6)


def test_whole_seconds_widen_what_is_said_of_the_error() -> None:
    coarse = measured(amd(), 5.5, 25.5)
    fine = measured(amd().replace(b",0,98", b".001,0,98").replace(b",1,98", b".001,1,98"), 5.5, 25.5)
    assert coarse.uncertainty_joules is not None
    assert fine.uncertainty_joules is not None
    assert coarse.uncertainty_joules > fine.uncertainty_joules + 2 * 700
    counted, finely = measured(energy(400), 10, 380), measured(energy(400, fraction=".5"), 10, 380)
    assert finely.gpus[0].source == "hardware"
    assert (counted.uncertainty_joules or 0.0) >= (finely.uncertainty_joules or 0.0) + 2 * 2 * 500


def test_output_of_one_moment_is_refused_with_what_to_do() -> None:
    with pytest.raises(LogError) as caught:
        read(b"gpu,socket_power,power_management\n0,356,ENABLED\n")
    assert "--watch" in str(caught.value)
    with pytest.raises(LogError) as caught:
        read(b"gpu,total_energy_consumption\n0,20909145.914\n")
    assert "--watch" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no head that is known"),
        (b"2026/11/30 15:00:00.000, 0, 400.00 W\n", "no head that is known"),
        (b"index, power.draw [W]\n0, 400.00 W\n", "no column timestamp"),
        (
            b"timestamp, power.draw [W]\n2026/11/30 15:00:00.000, 400.00 W\n2026/11/30 15:00:00.000, 500.00 W\n",
            "does not tell GPUs apart",
        ),
        (b"# gpu-exporter samples 9\nx\n", "line 1: expected"),
        (b"\x00\xff\xfe" * 100 + b"\n", "no head that is known"),
    ],
)
def test_what_cannot_be_used_is_said(content: bytes, says: str) -> None:
    with pytest.raises(LogError) as caught:
        read(content)
    assert says in str(caught.value)


def test_a_log_of_one_gpu_needs_no_name() -> None:
    rows = "".join(f"2026/11/30 15:00:{t:02}.000, {400 + t % 2}.00 W, 90 %\n" for t in range(30))
    result = measured(f"timestamp, power.draw [W], utilization.gpu [%]\n{rows}".encode(), 5, 25)
    assert result.power_valid
    assert [gpu.name for gpu in result.gpus] == ["nvidia0"]


def of_one_gpu(*watts: str, unit: str = "W", blind: bool = False) -> bytes:
    """A reading each second."""
    head = f"timestamp, power.draw.average [{unit}]" + ("" if blind else ", utilization.gpu [%]")
    rows = [
        f"2026/11/30 15:{t // 60:02d}:{t % 60:02d}.000, {cell}{'' if blind else f', {90 + t % 3} %'}"
        for t, cell in enumerate(watts)
    ]
    return "".join(f"{line}\n" for line in (head, *rows)).encode()


def test_the_unit_in_the_head_counts_where_cells_have_none() -> None:
    of_head, of_cells = (f"{1000 * (300 + t % 2)}" for t in range(9)), (f"{300 + t % 2} W" for t in range(9))
    found = [read(of_one_gpu(*of_head, unit="mW")), read(of_one_gpu(*of_cells, unit="mW"))]
    assert [[p.power_watts for p in log.points] for log in found] == [[300.0 + t % 2 for t in range(9)]] * 2


def test_power_that_no_gpu_draws_is_no_reading() -> None:
    idle_in_milliwatts = of_one_gpu(*(f"{15_000 + t % 7}" for t in range(60)))
    assert all(point.power_watts is None for point in read(idle_in_milliwatts).points)


def test_a_log_that_shows_nothing_but_power_has_to_move_for_most_of_the_window() -> None:
    moving, stuck = [f"{400 + t % 7} W" for t in range(40)], ["46.19 W"] * 100
    content = of_one_gpu(*moving, *stuck, *moving, blind=True)
    found = measured(content, 5.0, 170.0)
    assert [reason.reason for reason in found.reasons] == ["power_frozen"]
    assert measured(content, 5.0, 35.0).power_valid
    assert measured(of_one_gpu(*moving, *stuck, *moving), 5.0, 170.0).power_valid, "the load says that it is steady"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_what_a_shell_of_another_system_makes_of_a_log_is_read(encoding: str) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    for kind, content in LOGS.items():
        points = read(content).points
        recoded = mark + content.decode().replace("\n", "\r\n").encode(encoding)
        assert read(recoded).points == points, kind
        for cut in range(len(recoded) - 40, len(recoded)):
            part = read(recoded[:cut])
            assert part.points in (points, points[:-1], points[:-2]), (kind, cut)


def test_windows_of_our_own_log_are_asked_for_in_unix_time() -> None:
    log = read(LOGS["ours"])
    run = run_of(log, SOME[0].at + 0.5, SOME[0].at + 1.5)
    (asked,) = run.windows
    assert (asked.start, asked.end) == (SOME[0].monotonic + 0.5, SOME[0].monotonic + 1.5)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_log_or_a_message(junk: bytes) -> None:
    for content in (junk, nvidia(2) + junk, amd(2) + junk + b"\n", LOGS["ours"] + junk):
        try:
            log = read(content)
        except LogError:
            continue
        assert evaluate(run_of(log, START.timestamp(), START.timestamp() + 1)).windows


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("46.19 W", 46.19),
        ("46.19", 46.19),
        ("46190 mW", 46.19),
        ("1.2 kW", 1200.0),
        ("[N/A]", None),
        ("N/A", None),
        ("[Unknown Error]", None),
        ("[Not Supported]", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("-1", None),
        ("65535000", None),
        ("ENABLED", None),
        ("{'value': 356, 'unit': 'W'}", 356.0),
        ("{'value': 'N/A', 'unit': 'W'}", None),
    ],
)
def test_cells(cell: str, value: float | None) -> None:
    assert number(cell, 0.0, 20_000.0) == value


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1722959154", 1722959154.0),
        ("1722959154.25", 1722959154.25),
        ("1722959154250", 1722959154.25),
        ("1722959154250000000", 1722959154.25),
        ("2026/11/30 15:00:00.250", START.timestamp() + 0.25),
        ("2026-11-30T15:00:00.250Z", START.timestamp() + 0.25),
        ("2026-11-30T15:00:00+02:00", START.timestamp() - 7200),
        ("15:00:00", None),
        ("yesterday", None),
        ("", None),
        ("2026/11/30 15:00:0", None),
        ("12", None),
    ],
)
def test_times(cell: str, value: float | None) -> None:
    assert moment(cell, UTC) == (None if value is None else pytest.approx(value, abs=1e-6))
