"""Capture files: any file is understood and can be replayed, or told about by lines, in bounded time."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import example, given

from exporter.captures.answers import FIELD_VALUES, Handle, parse_call
from exporter.captures.format import SYSTEM, CaptureError, load_capture
from tests.captures.replay import Replay, ReplayedError, materialise
from tests.unit.fuzz.documents import Stopwatch, files, judged, many

NAME = "a file: of ours.yaml"
EXPECTED = (KeyError, ValueError, OSError, AttributeError, TypeError, IndexError, RuntimeError, MemoryError)
"""What a capture may have an answer raise; AttributeError also where it is no function of the vendor's."""
CAPTURES = [
    b"""
model: NVIDIA T4
source: a test
seen: documented
wall: {watts: 33.5}
library: {package: pynvml, version: "13"}
moments:
- at: 0
  calls:
    system: {nvmlDeviceGetCount: 1, nvmlDeviceGetHandleByIndex(0): {$handle: gpu0}}
    gpu0: {nvmlDeviceGetName: {$undecodable: /w==}, nvmlDeviceGetFieldValues: {186: 33510, 185/1: {$error: 3}}}
  files:
    sys/class/drm/card0: {$link: ../../devices/a}
    sys/devices/a: {vendor: "0x10de", locked: {$unreadable: EPERM}, b/gpu_metrics: {$base64: eAABAw==}, c: {$text: x}}
- at: 1
  calls: {gpu0: {nvmlDeviceGetFieldValues: {186: 34000}}}
  files: {sys/devices/a/vendor: null}
""",
    b"""
{"model": "MI300X", "source": "x", "seen": "hardware", "library": {"package": "amdsmi", "version": "26",
"constants": {"A": 1}}, "moments": [{"at": 0, "calls": {"system": {"amdsmi_get_processor_handles": [{"$handle": "g"}]},
"g": {"amdsmi_get_power_info": {"socket_power": "N/A"}, "amdsmi_get_energy_count": {"$raises": "KeyError"}}}}]}
""",
]


@many(400)
@given(files(CAPTURES))
@example(CAPTURES[0].replace(b"vendor:", b'"../../../x":'))
@example(CAPTURES[0].replace(b"../../devices/a", b"../../../../tmp"))
def test_a_capture_is_one_that_can_be_replayed_or_a_list_of_problems(data: bytes) -> None:
    with Stopwatch():
        try:
            capture = load_capture(data, name=NAME)
        except CaptureError as error:
            judged(NAME, error.messages)
            return
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "root"
            for number in range(len(capture.moments)):
                materialise(capture, root, number)
            assert list(Path(folder).iterdir()) in ([], [root])
        if capture.library is not None:
            replay = Replay(capture)
            for number, moment in enumerate(capture.moments):
                replay.number = number
                for subject, calls in moment.calls.items():
                    for text in calls:
                        ask(replay, subject, text)


def ask(replay: Replay, subject: str, text: str) -> None:
    """Make a recorded call; whatever comes of it comes in the vendor's way."""
    function, arguments = parse_call(text) or ("", "")
    handle = [] if subject == SYSTEM else [Handle(subject)]
    given = [[(186, 0)]] if function == FIELD_VALUES else arguments.split(", ") if arguments else []
    with contextlib.suppress(ReplayedError, *EXPECTED):
        getattr(replay, function)(*handle, *given)
