"""When is a device left alone because it sleeps?"""

from pathlib import Path

import pytest

from exporter.providers.sysfs import is_suspended

ADDRESS = "0000:01:00.0"


@pytest.mark.parametrize(
    ("status", "suspended"),
    [
        ("suspended\n", True),
        ("suspending\n", True),  # a call would wake it again at once
        ("active\n", False),
        ("resuming\n", False),
        ("error\n", False),
        ("unsupported\n", False),
        ("", False),
    ],
)
def test_what_the_kernel_says_decides(tmp_path: Path, status: str, suspended: bool) -> None:
    power = tmp_path / "sys/bus/pci/devices" / ADDRESS / "power"
    power.mkdir(parents=True)
    (power / "runtime_status").write_text(status)
    assert is_suspended(tmp_path, ADDRESS) is suspended


def test_where_the_kernel_says_nothing_the_device_is_awake(tmp_path: Path) -> None:
    assert not is_suspended(tmp_path, ADDRESS)
    assert not is_suspended(tmp_path, None)
