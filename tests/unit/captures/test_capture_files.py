"""Files that a provider reads are copied in the kernel's own layout, and a replay finds them by the same paths."""

import os
from pathlib import Path

import pytest

from exporter.captures.format import load_capture
from exporter.captures.record import Recorder, dump
from exporter.captures.redact import Redactor
from exporter.providers.drm.files import KernelFiles
from tests.captures.replay import materialise

DEVICE = "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with one card, laid out as the kernel does."""
    root = tmp_path / "host"
    device = root / DEVICE
    (device / "drm/card0/card0-HDMI-A-1").mkdir(parents=True)
    (device / "drm/renderD128").mkdir()
    (device / "drm/card0/device").symlink_to("../../../0000:03:00.0")
    (root / "sys/class/drm").mkdir(parents=True)
    (root / "sys/class/drm/card0").symlink_to("../../devices/pci0000:00/0000:00:01.1/0000:03:00.0/drm/card0")
    (device / "driver").symlink_to("../../../../bus/pci/drivers/amdgpu")
    (device / "vendor").write_text("0x1002\n")
    (device / "../vendor").write_text("0x1022\n")
    (device / "unique_id").write_text("b1d2c3a4e5f60718\n")
    (device / "gpu_metrics").write_bytes(b"\x78\0\x01\x03")
    (device / "unread").write_text("1\n")
    (device / "folder").mkdir()
    return root


def look(root: Path, files: KernelFiles) -> list[object]:
    """Read as the DRM provider does; what it gets."""
    card = f"{root}/sys/class/drm/card0"
    seen: list[object] = [
        files.names(f"{card}/device/drm"),
        files.read(f"{card}/device/vendor"),
        files.read(f"{card}/device/../vendor"),  # as the link to the slot is looked for
        files.read_whole(f"{card}/device/gpu_metrics"),
        files.leads_to(f"{card}/device"),
        files.leads_to(f"{card}/device/driver"),
        files.leads_to(f"{card}/device/physfn"),
    ]
    with pytest.raises(FileNotFoundError):
        files.read(f"{card}/device/missing")
    with pytest.raises(OSError, match=r"Is a directory|Too many levels"):
        files.read(f"{card}/device/folder")
    return [sorted(each) if isinstance(each, list) else each for each in seen]


def test_what_was_read_is_read_again_from_the_copy(host: Path, tmp_path: Path) -> None:
    recorder = Recorder(root=host)
    seen = look(host, recorder.wrap(KernelFiles()))
    recorder.moment(0.0)
    capture = load_capture(dump(recorder.capture(model="a card", source="a test", version="")))
    materialise(capture, tmp_path / "copy")
    assert look(tmp_path / "copy", KernelFiles()) == seen
    assert not (tmp_path / "copy" / DEVICE / "unread").exists()


def test_later_moments_hold_the_files_that_changed(host: Path) -> None:
    recorder = Recorder(root=host)
    files = recorder.wrap(KernelFiles())
    look(host, files)
    recorder.moment(0.0)
    (host / DEVICE / "vendor").write_text("0x8086\n")
    look(host, files)
    recorder.moment(1.0)
    capture = recorder.capture(model="a card", source="a test", version="")
    assert capture.moments[1].files == {f"{DEVICE}/vendor": "0x8086"}


def test_a_serial_number_that_is_no_ascii_is_replaced_all_the_same() -> None:
    told = Redactor(key=b"k" * 32).file("sys/devices/a/serial_number", b"S\xc9RIAL-12345\xff\n")
    assert b"12345" not in told
    assert told.startswith(b"S\xc9RIAL-")


def test_what_identifies_a_card_is_replaced(host: Path) -> None:
    recorder = Recorder(Redactor(key=b"k"), root=host)
    recorder.wrap(KernelFiles()).read(f"{host}/sys/class/drm/card0/device/unique_id")
    recorder.moment(0.0)
    (moment,) = recorder.capture(model="a card", source="a test", version="").moments
    told = moment.files[f"{DEVICE}/unique_id"]
    assert len(told) == 16
    assert told != "b1d2c3a4e5f60718"
    int(told, 16)


def test_files_of_a_device_are_copied_for_providers_with_a_library(host: Path, tmp_path: Path) -> None:
    (host / "sys/bus/pci/devices").mkdir(parents=True)
    (host / "sys/bus/pci/devices/0000:03:00.0").symlink_to(f"../../../{DEVICE.removeprefix('sys/')}")
    (host / DEVICE / "power").mkdir()
    (host / DEVICE / "power/runtime_status").write_text("active\n")
    recorder = Recorder(root=host)
    recorder.copier.devices(["0000:03:00.0", "0000:99:00.0"])
    recorder.moment(0.0)
    materialise(recorder.capture(model="a card", source="a test", version=""), tmp_path / "copy")
    device = tmp_path / "copy/sys/bus/pci/devices/0000:03:00.0"
    assert (device / "power/runtime_status").read_text() == "active\n"
    assert Path(os.path.realpath(device / "driver")).name == "amdgpu"
