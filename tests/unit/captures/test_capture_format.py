"""What is a capture, what is none, and what the messages say."""

import pytest

from exporter.captures.answers import Handle, Member, Raised, Refusal, decode
from exporter.captures.files import Link, Unreadable
from exporter.captures.format import Capture, CaptureError, load_capture

CAPTURE = """
model: NVIDIA T4
source: published output
filled_in: the address
seen: published
wall: {watts: 33.5, joules: 33.5}
library: {package: pynvml, version: 13.595.91.07}
moments:
- at: 0
  calls:
    system:
      nvmlDeviceGetCount: 1
      nvmlDeviceGetHandleByIndex(0): {$handle: gpu0}
    gpu0:
      nvmlDeviceGetName(): Tesla T4
      nvmlDeviceGetTotalEccErrors( 0 ,1): 2
      nvmlDeviceGetFieldValues: {186: 33510, 82: {$error: 3}, 185/1: {$error: 3}}
      nvmlDeviceGetSerial: {$undecodable: /w==}
  files:
    sys/class/drm/card0: {$link: ../../devices/pci0/0000:00:1e.0/drm/card0}
    sys/devices/pci0/0000:00:1e.0:
      vendor: "0x10de"
      numa_node: -1
      power/runtime_status: active
      gpu_metrics: {$base64: eAABAw==}
      odd: {$text: no end}
      locked: {$unreadable: EPERM}
- at: 1.5
  calls:
    gpu0: {nvmlDeviceGetFieldValues: {186: 34000}}
  files:
    sys/devices/pci0/0000:00:1e.0: {numa_node: 0, locked: null}
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(CaptureError) as caught:
        load_capture(text, name="c.yaml")
    return caught.value.messages


def changed(old: str, new: str) -> str:
    assert old in CAPTURE
    return CAPTURE.replace(old, new, 1)


@pytest.fixture
def capture() -> Capture:
    return load_capture(CAPTURE)


def test_each_moment_holds_what_is_different_from_the_one_before(capture: Capture) -> None:
    first, second = capture.calls_at(0)["gpu0"], capture.calls_at(1)["gpu0"]
    assert first["nvmlDeviceGetFieldValues"]["186"] == 33510
    assert second["nvmlDeviceGetFieldValues"] == {"186": 34000, "82": {"$error": 3}, "185/1": {"$error": 3}}
    assert second["nvmlDeviceGetName"] == "Tesla T4"


def test_a_call_is_found_however_its_spaces_are_set(capture: Capture) -> None:
    assert capture.calls_at(0)["gpu0"]["nvmlDeviceGetTotalEccErrors(0, 1)"] == 2


def test_files_are_text_with_a_line_feed_unless_they_say_otherwise(capture: Capture) -> None:
    files = capture.files_at(0)
    folder = "sys/devices/pci0/0000:00:1e.0"
    assert files[f"{folder}/vendor"] == b"0x10de\n"
    assert files[f"{folder}/numa_node"] == b"-1\n"
    assert files[f"{folder}/power/runtime_status"] == b"active\n"
    assert files[f"{folder}/odd"] == b"no end"
    assert files[f"{folder}/gpu_metrics"] == b"\x78\0\x01\x03"
    assert files[f"{folder}/locked"] == Unreadable("EPERM")
    assert files["sys/class/drm/card0"] == Link("../../devices/pci0/0000:00:1e.0/drm/card0")
    later = capture.files_at(1)
    assert later[f"{folder}/numa_node"] == b"0\n"
    assert f"{folder}/locked" not in later


def test_answers_that_are_no_plain_values_are_marked() -> None:
    assert decode({"$handle": "gpu0"}) == Handle("gpu0")
    assert decode([{"$error": 15}]) == [Refusal(15)]
    assert decode({"fw_name": {"$member": "FW_ID_PM"}}) == {"fw_name": Member("FW_ID_PM")}
    assert decode({"name": {"$bytes": "/w=="}}) == {"name": b"\xff"}
    (raised,) = decode([{"$raises": "KeyError"}])
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, KeyError)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source: published output", "source: ' '", "source: needed"),
        ("source: published output\n", "", "source: needed"),
        ("seen: published", "seen: yes", 'seen: expected one of documented, hardware, published, got "yes"'),
        ("watts: 33.5", "watts: -1", "wall.watts: expected a number from 0 to 1e+12, got -1"),
        ("package: pynvml", "package: nvml", 'library.package: expected one of amdsmi, pynvml, got "nvml"'),
        (
            "nvmlDeviceGetCount: 1",
            "'nvmlDeviceGetCount(': 1",
            'moments[0].calls.system."nvmlDeviceGetCount(": expected a call such as function(argument)',
        ),
        (
            "nvmlDeviceGetName()",
            "nvmlDeviceGetTotalEccErrors(0,1)",
            'moments[0].calls.gpu0."nvmlDeviceGetTotalEccErrors( 0 ,1)": given twice',
        ),
        ("gpu0:\n", "gpu 0:\n", 'moments[0].calls."gpu 0": it is no name of a handle'),
        (
            "{$handle: gpu0}",
            "{$handle: 0}",
            'moments[0].calls.system."nvmlDeviceGetHandleByIndex(0)"."$handle": expected the name of a handle, got 0',
        ),
        (
            "/w==",
            "'*'",
            'moments[0].calls.gpu0.nvmlDeviceGetSerial."$undecodable": expected base64, got "*"',
        ),
        (
            "186: 33510",
            "186/x: 33510",
            'moments[0].calls.gpu0.nvmlDeviceGetFieldValues."186/x": expected a field such as 185 or 185/1',
        ),
        (
            "186: 33510",
            "186: many",
            'moments[0].calls.gpu0.nvmlDeviceGetFieldValues.186: expected a number or a refusal, got "many"',
        ),
        (
            "seen: published",
            "seen: published\ndocumented: [power_watts, power_what]",
            'documented[1]: no reading is called "power_what", did you mean "power_watts"?',
        ),
        ("at: 1.5", "at: 0", "moments[1].at: it is not after the moment before"),
        (
            "locked: {$unreadable: EPERM}",
            "locked: {$unreadable: EWHAT}",
            'moments[0].files."sys/devices/pci0/0000:00:1e.0".locked: expected the name of an error, such as EPERM',
        ),
        (
            "odd: {",
            "vendor/odd: {",
            (
                'moments[0].files."sys/devices/pci0/0000:00:1e.0"."vendor/odd": it is below '
                '"sys/devices/pci0/0000:00:1e.0/vendor", which is no folder'
            ),
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, message: str) -> None:
    assert f"c.yaml: {message}" in problems(changed(old, new))


@pytest.mark.parametrize(
    "path", ["/sys/x", "etc/passwd", "sys", "sys/../../x", "sys//x", "proc/./x", "sys/a/../b", "sys/" + "a/" * 30 + "b"]
)
def test_a_file_is_in_sys_or_proc(path: str) -> None:
    assert len(problems(changed("sys/class/drm/card0:", f'"{path}":'))) == 1


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../etc", "../a/../../../../x", "a/..", "..", "", "a//b"])
def test_a_link_stays_below_the_root(target: str) -> None:
    (message,) = problems(changed("../../devices/pci0/0000:00:1e.0/drm/card0", f'"{target}"'))
    assert message.endswith('card0": expected a relative path that stays below the root')


def test_nothing_is_written_through_a_link_of_a_moment_before() -> None:
    (message,) = problems(changed("{numa_node: 0, locked: null}", "{numa_node: 0}\n    sys/class/drm/card0/x: 1"))
    assert message == (
        'c.yaml: moments[1].files."sys/class/drm/card0/x": it is below "sys/class/drm/card0", which is no folder'
    )


def test_a_folder_does_not_become_a_link() -> None:
    (message,) = problems(
        changed(
            "sys/devices/pci0/0000:00:1e.0: {numa_node: 0, locked: null}", '"sys/devices/pci0": {$link: "../class"}'
        )
    )
    assert message == 'c.yaml: moments[1].files."sys/devices/pci0": it is a folder in a moment before'


def test_all_mistakes_are_told_at_once() -> None:
    text = changed("seen: published", "seen: 7").replace("at: 0", "at: soon")
    assert len(problems(text)) == 2
