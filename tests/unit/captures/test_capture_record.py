"""What is recorded of calls, what of it may leave the host, and that a recording replays as what was recorded."""

import ctypes
import enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.captures.format import Capture, Library, Moment, Wall, load_capture
from exporter.captures.record import Recorder, dump
from exporter.captures.redact import Redactor
from tests.captures.replay import Replay

UUID = "GPU-a1b2c3d4-e5f6-a7b8-c9d0-e1f2a3b4c5d6"
SERIAL = "1654922006536"
UNIQUE = "b1d2c3a4e5f60718"
KEY = b"k" * 32


class Device(ctypes.Structure):
    pass


class Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong), ("name", ctypes.c_char * 8))


class Kind(enum.IntEnum):
    HOTSPOT = 1
    JUNCTION = 1


class RefusedError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def refuse(code: int) -> Any:
    def call(*_: Any) -> None:
        raise RefusedError(code)

    return call


def fill_in(_: Any, pointer: Any) -> int:
    pointer.contents.used = 9
    return 0


def field(number: int, scope: int, value: int, refused: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        fieldId=number, scopeId=scope, nvmlReturn=refused, valueType=3, value=SimpleNamespace(ullVal=value)
    )


def library() -> ModuleType:
    """Return a module in the shape of pynvml, with one GPU."""
    module = ModuleType("pynvml")
    target = Device()
    memory = Memory(100, 7, b"hbm3")
    answers = {
        "nvmlInit": lambda: None,
        # Each call makes another pointer to the same device.
        "nvmlDeviceGetHandleByIndex": lambda _: ctypes.pointer(target),
        "nvmlDeviceGetHandleByUUID": lambda _: ctypes.pointer(target),
        "nvmlDeviceGetUUID": lambda _: UUID,
        "nvmlDeviceGetSerial": lambda _: SERIAL,
        "nvmlDeviceGetMemoryInfo": lambda *_: memory,
        "nvmlDeviceGetTemperature": lambda *_: 48,
        "nvmlDeviceGetFanSpeed": refuse(3),
        "nvmlDeviceGetPowerUsage": refuse(15),
        "nvmlDeviceGetFieldValues": lambda _, ids: [
            field(number, 0, 1000 * number, refused=3 * (number == 82)) for number in ids
        ],
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=7, usedGpuMemory=None, name="secret")],
        "nvmlDeviceGetGpuFabricInfoV": fill_in,
        "nvmlDeviceGetOdd": lambda *_: 1,
        "nvmlGpmMetricsGet": lambda struct: struct,
    }
    vars(module).update(answers, NVMLError=RefusedError, NVML_CONSTANT=5)
    return module


def recorded(recorder: Recorder) -> Capture:
    """Ask everything once, and return the capture as its file has it."""
    module = recorder.wrap(library())
    module.nvmlInit()
    handle = module.nvmlDeviceGetHandleByIndex(0)
    for name in ("UUID", "Serial", "ComputeRunningProcesses"):
        getattr(module, f"nvmlDeviceGet{name}")(handle)
    module.nvmlDeviceGetMemoryInfo(module.nvmlDeviceGetHandleByUUID(UUID), 2)
    module.nvmlDeviceGetTemperature(handle, Kind.HOTSPOT)
    module.nvmlDeviceGetFieldValues(handle, [82, 83])
    module.nvmlDeviceGetFieldValues(handle, [186])
    for name in ("FanSpeed", "PowerUsage"):
        with pytest.raises(RefusedError):
            getattr(module, f"nvmlDeviceGet{name}")(handle)
    module.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.pointer(Memory(100, 7)))
    module.nvmlGpmMetricsGet(Memory())
    module.nvmlDeviceGetOdd(handle, object())
    assert module.NVML_CONSTANT == 5
    recorder.moment(0.0)
    return load_capture(dump(recorder.capture(model="a model", source="this host", version="13")))


def test_calls_are_recorded_with_handles_as_names_and_structs_as_mappings() -> None:
    calls = recorded(Recorder(Redactor(key=KEY))).calls_at(0)
    assert set(calls) == {"system", "gpu0"}
    assert calls["system"]["nvmlInit"] is None
    assert calls["system"]["nvmlDeviceGetHandleByIndex(0)"] == {"$handle": "gpu0"}
    gpu = calls["gpu0"]
    assert gpu["nvmlDeviceGetMemoryInfo(2)"] == {"total": 100, "used": 7, "name": {"$bytes": "aGJtMw=="}}
    assert gpu["nvmlDeviceGetTemperature(HOTSPOT)"] == gpu["nvmlDeviceGetTemperature(JUNCTION)"] == 48
    assert gpu["nvmlDeviceGetFanSpeed"] == {"$error": 3}
    assert gpu["nvmlDeviceGetPowerUsage"] == {"$error": 15}
    assert gpu["nvmlDeviceGetFieldValues"] == {"82": {"$error": 3}, "83": 83000, "186": 186000}


def test_what_cannot_be_written_down_passes_through_and_is_told() -> None:
    recorder = Recorder()
    recorded(recorder)
    assert recorder.left_out == {"nvmlDeviceGetOdd"}


def test_what_identifies_the_hardware_and_its_users_is_replaced_the_same_everywhere() -> None:
    recorder = Recorder(Redactor(key=KEY))
    capture = recorded(recorder)
    text = dump(capture)
    for secret in (UUID[4:], SERIAL, "secret"):
        assert secret not in text
    gpu, system = capture.calls_at(0)["gpu0"], capture.calls_at(0)["system"]
    uuid = gpu["nvmlDeviceGetUUID"]
    assert uuid.startswith("GPU-")
    assert len(uuid) == len(UUID)
    assert system[f"nvmlDeviceGetHandleByUUID({uuid})"] == {"$handle": "gpu0"}
    assert gpu["nvmlDeviceGetSerial"].isdigit()
    assert len(gpu["nvmlDeviceGetSerial"]) == len(SERIAL)


def test_a_recording_replays_as_what_was_recorded() -> None:
    capture = recorded(Recorder(Redactor(key=KEY)))
    again = Recorder(Redactor(key=KEY))
    module = again.wrap(Replay(capture, errors=RefusedError))
    handle = module.nvmlDeviceGetHandleByIndex(0)
    assert module.nvmlDeviceGetMemoryInfo(handle, 2).used == 7
    with pytest.raises(RefusedError):
        module.nvmlDeviceGetFanSpeed(handle)


def test_a_struct_that_is_given_is_filled_in_again() -> None:
    replay = Replay(recorded(Recorder(Redactor(key=KEY))))
    memory = Memory()
    assert replay.nvmlDeviceGetGpuFabricInfoV(replay.nvmlDeviceGetHandleByIndex(0), ctypes.pointer(memory)) == 0
    assert (memory.total, memory.used) == (100, 9)


def test_later_moments_hold_what_changed() -> None:
    recorder = Recorder()
    source = library()
    module = recorder.wrap(source)
    handle = module.nvmlDeviceGetHandleByIndex(0)
    module.nvmlDeviceGetTemperature(handle, 0)
    recorder.moment(0.0)
    module.nvmlDeviceGetTemperature(handle, 0)
    recorder.moment(1.0)
    vars(source)["nvmlDeviceGetTemperature"] = lambda *_: 50
    module.nvmlDeviceGetTemperature(handle, 0)
    recorder.moment(2.0)
    capture = recorder.capture(model="a model", source="this host", version="13")
    assert [moment.at for moment in capture.moments] == [0.0, 1.0, 2.0]
    assert capture.moments[1].calls == {}
    assert capture.moments[2].calls == {"gpu0": {"nvmlDeviceGetTemperature(0)": 50}}


def test_one_number_is_replaced_by_one_number_however_it_is_written() -> None:
    redactor = Redactor(key=KEY)
    serial = redactor.answer("amdsmi_get_gpu_asic_info", {"asic_serial": f"0x{UNIQUE.upper()}", "device_id": "0x74a1"})
    file = redactor.file("sys/devices/a/unique_id", f"{UNIQUE}\n".encode()).decode()
    properties = redactor.file("sys/class/kfd/x/properties", f"simd_count 4\nunique_id {int(UNIQUE, 16)}\n".encode())
    assert serial["device_id"] == "0x74a1"
    assert serial["asic_serial"].lower() == f"0x{file.strip()}"
    assert UNIQUE not in file
    assert properties.decode() == f"simd_count 4\nunique_id {int(file, 16)}\n"


@pytest.mark.parametrize("word", ["N/A", "", "0", "0x0", "0xFFFFFFFFFFFFFFFF", "00000000-0000-0000-0000-000000000000"])
def test_what_means_no_serial_stays(word: str) -> None:
    assert Redactor().answer("nvmlDeviceGetSerial", word) == word


def test_names_of_host_and_user_are_not_told() -> None:
    redactor = Redactor({"node17": "host", "alice": "user"})
    assert redactor.text("node17: /home/alice/x") == "host: /home/user/x"
    assert redactor.file("sys/x", b"malice on node17\n") == b"malice on host\n"


DIGITS = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(DIGITS, st.text("0123456789", min_size=8, max_size=16), st.integers(2**48, 2**64 - 2))
def test_no_secret_is_left_wherever_it_stands(digits: str, serial: str, unique: int) -> None:
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    redactor = Redactor({"node17": "host"})
    answers = [
        redactor.answer("nvmlDeviceGetSerial", serial),
        redactor.answer("amdsmi_get_xgmi_info", {"xgmi_hive_id": unique, "index": 3}),
        redactor.answer("amdsmi_get_gpu_asic_info", {"asic_serial": f"0x{unique:016X}", "oam_id": 3}),
        redactor.answer("nvmlDeviceGetName", [f"on node17: GPU-{uuid}", {"name": f"MIG-{uuid}", "other": serial}]),
        redactor.text(f"nvmlDeviceGetHandleByUUID({uuid.upper()})"),
        redactor.file("sys/x/properties", f"unique_id {unique}\nsimd_count 4\n".encode()).decode(),
        redactor.file("sys/x/unique_id", f"{unique:016x}\n".encode()).decode(),
        redactor.file("proc/driver/nvidia/gpus/x/information", f"GPU UUID: \t GPU-{uuid}\n".encode()).decode(),
    ]
    text = str(answers)
    assert "node17" not in text
    for secret in (uuid, serial, f"{unique:016x}", str(unique)):
        if set(secret) - {"-"} not in ({"0"}, {"f"}):  # these say that there is none
            assert secret.lower() not in text.lower()
    assert "simd_count 4" in text
    assert "'index': 3" in text


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_xyz", min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_a_capture_is_read_as_it_was_written(answer: Any) -> None:
    capture = Capture(
        model="yes",
        source="1e3: no # comment",
        filled_in="- 012\n~",
        seen="hardware",
        wall=Wall(watts=1.5),
        library=Library(package="pynvml", version="1.10"),
        moments=(Moment(at=0.0, calls={"system": {"f(1, a)": answer}}, files={"sys/x": "0x1002", "sys/y": "on"}),),
    )
    try:
        text = dump(capture).encode()
    except UnicodeEncodeError:
        return  # half a character, which no driver's text has
    assert load_capture(text) == capture
