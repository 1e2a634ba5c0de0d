"""A glance shows all of the world but its readings."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.announce import Announcer, summary
from exporter.model import Group, PartitionSample, ProcessSample, World
from tests.unit.fleet.hosts import ALL, Host, card
from tests.unit.fleet.test_fallback_stories import PROVIDERS, STEPS, Story

DIVISIONS = st.sampled_from([None, (), ("gi3",), ("gi3", "gi4")])
MORE_STEPS = STEPS | st.tuples(st.just("divide"), PROVIDERS, DIVISIONS, st.floats(0, 1))


def outline(world: World) -> object:
    """Return what is said of changes, in the log and to systemd, how GPUs are divided, and by what a failure lasts."""
    providers = [
        (one.provider, one.up, one.wanted, one.reason, one.library_version, one.devices_expected)
        for one in world.snapshots
    ]
    divisions = [
        [part.partition for part in device.sample.partitions or ()] for one in world.snapshots for device in one.devices
    ]
    return Announcer().lines(world), summary(world), providers, divisions, world.released, world.config_reloaded


class Glances(Story):
    """Between its steps nobody asks for more than a glance, but where pages are made."""

    def __init__(self, pages: list[bool]) -> None:
        super().__init__()
        self.pages = pages

    def live(self, step: tuple[object, ...]) -> None:
        match step:
            case ("divide", provider, names, used):
                parts = (
                    None
                    if names is None
                    else tuple(PartitionSample(partition=n, utilization_ratio=used) for n in names)
                )
                self.host.read(self.names[provider], Group.STATE, provider=provider, partitions=parts)
                self._hold()
            case _:
                super().live(step)

    def _hold(self) -> None:
        fleet, now = self.host.fleet, self.host.now
        glanced = outline(fleet.glance(now))
        if self.pages and self.pages.pop():
            assert glanced == outline(fleet.world(now))


@settings(deadline=None, max_examples=150)
@given(st.lists(MORE_STEPS, max_size=20), st.lists(st.booleans(), max_size=40))
def test_whatever_happens_is_seen_at_a_glance(steps: list[tuple[object, ...]], pages: list[bool]) -> None:
    story = Glances(pages)
    for step in steps:
        story.live(step)
    fleet, now = story.host.fleet, story.host.now
    assert outline(fleet.glance(now)) == outline(fleet.world(now))


def test_readings_alone_make_no_other_world() -> None:
    host = Host(card(0), card(1))
    host.down(up=True)
    for number in (0, 1):
        host.read(card(number), *ALL, power_watts=300.0)
    shown = host.world
    host.wait(1.0)
    host.read(card(0), Group.ENERGY, power_watts=310.0)
    assert host.fleet.glance(host.now) is shown
    assert host.cards["nvidia0"].sample.power_watts == 310.0


def test_who_is_on_a_gpu_is_seen_at_a_glance() -> None:
    host = Host(card(0), card(1))
    host.down(up=True)
    for number in (0, 1):
        host.read(card(number), *ALL, power_watts=300.0)
    before = host.world
    came = (ProcessSample(pid=77, started=5000),)
    host.wait(1.0)
    host.read(card(1), Group.PROCESSES, processes=came)
    seen = host.fleet.glance(host.now)
    assert seen is not before
    assert seen.snapshots[0].devices[1].sample.processes == came


def test_how_a_gpu_is_divided_is_seen_at_a_glance_and_what_its_parts_use_makes_no_other_world() -> None:
    def read(*partitions: PartitionSample) -> World:
        host.wait(5.0)
        host.read(card(0), Group.STATE, partitions=partitions)
        return host.fleet.glance(host.now)

    host = Host(card(0))
    host.down(up=True)
    host.read(card(0), *ALL, power_watts=300.0, partitions=())
    whole = host.world
    part = PartitionSample(partition="gi3", uuid="MIG-3", profile="1g.10gb", memory_used_bytes=1.0)
    divided = read(part)
    assert divided.snapshots[0].devices[0].sample.partitions == (part,)
    assert divided is not whole
    assert read(msgspec.structs.replace(part, memory_used_bytes=2.0)) is divided
    assert read(msgspec.structs.replace(part, uuid="MIG-4")) is not divided
    assert read().snapshots[0].devices[0].sample.partitions == ()
