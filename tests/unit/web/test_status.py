"""The landing page, for people."""

from html.parser import HTMLParser

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from exporter import __version__
from exporter.model import Device, DeviceSnapshot, GpuState, Sample, Snapshot, World
from exporter.web.status import MAX_DEVICES, MAX_TEXT, landing_page

NOW = 1_800_000_000.0


def device(gpu: str = "nvidia0", model: str = "H100", key: str = "GPU-1", age: float | None = 2.5) -> DeviceSnapshot:
    identity = Device(vendor="nvidia", key=key, model=model)
    return DeviceSnapshot(
        gpu=gpu,
        provider="nvidia",
        device=identity,
        state=GpuState.OK,
        sample=Sample(device=identity),
        last_sample_timestamp=None if age is None else NOW - age,
    )


def provider(*devices: DeviceSnapshot, name: str = "nvidia", up: bool = True, reason: str = "") -> Snapshot:
    return Snapshot(
        provider=name,
        up=up,
        wanted=True,
        reason=reason,
        library_version="13.615",
        devices=devices,
        devices_expected=8,
        last_sample_timestamp=NOW - 7.25,
    )


def page(*snapshots: Snapshot, telemetry_path: str = "/metrics", **world: object) -> str:
    seen = msgspec.convert({"snapshots": snapshots, "versions": {}, **world}, World, from_attributes=True)
    return landing_page(seen, telemetry_path, NOW).decode()


class Outline(HTMLParser):
    """Tags, links and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str | None] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name == "href"]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def test_it_shows_version_providers_and_devices_with_the_age_of_their_last_sample() -> None:
    down = provider(name="amd", up=False, reason="libamd_smi.so is not there")
    words = " ".join(Outline(page(provider(device(), device("nvidia1", age=None)), down)).words)
    for said in (
        f"Version {__version__}",
        "nvidia: up",
        "Library 13.615, 2 of 8 devices on PCI, Last reading 7.2 s ago",
        "nvidia0 H100 ok 2.5 s ago GPU-1",
        "nvidia1 H100 ok never GPU-1",
        "amd: down",
        "libamd_smi.so is not there",
    ):
        assert said in words


def test_it_links_to_the_metrics_and_the_probes() -> None:
    links = Outline(page(telemetry_path='/gpu "metrics"')).links
    assert links == ["./gpu%20%22metrics%22", "./-/healthy", "./-/ready"]


def test_it_says_that_devices_are_released_and_children_abandoned() -> None:
    text = page(released=True, workers_abandoned=3)
    assert "released on request" in text
    assert "could not be killed: 3" in text


def test_it_says_that_the_configuration_is_not_the_one_on_disk() -> None:
    assert "could not be reloaded" in page(config_reloaded=False)
    assert "could not be reloaded" not in page()


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    assert "0.0 s ago" in page(provider(device(age=-100)))


def test_the_number_of_rows_is_bounded() -> None:
    text = page(provider(*(device(f"nvidia{n}") for n in range(MAX_DEVICES + 5))))
    assert text.count("<tr><td>") == MAX_DEVICES
    assert "and 5 more" in text


@given(
    st.text(st.characters(codec=None), max_size=40) | st.sampled_from(["<script>alert(1)</script>", "\ud800", "&lt;"])
)
def test_no_string_of_a_device_or_library_becomes_markup(text: str) -> None:
    rendered = page(provider(device(text, text, text), name=text, reason=text))
    outline = Outline(rendered)
    assert outline.open == []
    assert outline.tags <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "span", "table", "tr", "th", "td")
    }


def test_long_strings_are_cut() -> None:
    assert "x" * (MAX_TEXT + 1) not in page(provider(device(model="x" * 10_000)))
