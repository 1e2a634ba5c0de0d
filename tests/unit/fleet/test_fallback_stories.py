"""Whatever two providers tell of one card, in whatever order: it is one card, and its total is true."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.model import GpuState, Group, ProcessSample, Sample
from tests.unit.fleet.hosts import ALL, sample
from tests.unit.fleet.pair import CARD, Pair, gpu

WATTS = {"amd": 100.0, "drm": 200.0}
PROVIDERS = st.sampled_from(["amd", "drm"])
STEPS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.05, 1.0, 4.0, 6.0, 16.0, 70.0])),
    st.tuples(st.just("run"), st.sampled_from([("amd",), ("drm",), ("amd", "drm")]), st.integers(1, 70)),
    st.tuples(st.just("read"), PROVIDERS, st.frozensets(st.sampled_from(ALL)), st.booleans()),
    st.tuples(st.just("late"), PROVIDERS, st.floats(0, 30)),
    st.tuples(
        st.sampled_from(["lost", "asleep", "hang", "clear", "down", "up", "list", "unlist", "rename"]), PROVIDERS
    ),
    st.tuples(st.sampled_from(["release", "take up", "restart"])),
)


class Story:
    """A host that is told anything, and what must hold after each step."""

    def __init__(self) -> None:
        self.host = Pair(listed=())
        self.totals = (0.0, 0.0)
        self.names = {"amd": CARD, "drm": gpu(key="d1")}
        """The card as each provider names it."""
        self._list()

    def _list(self) -> None:
        for provider in ("drm", "amd"):
            self.host.fleet.enumerated(provider, (self.names[provider],), self.host.now)

    def live(self, step: tuple[object, ...]) -> None:  # noqa: C901, PLR0912 -- one case for each kind of step
        host = self.host
        match step:
            case ("wait", seconds):
                host.wait(seconds)
            case ("run", providers, seconds):
                for _ in range(seconds):
                    host.wait(1.0)
                    for provider in providers:
                        self._read(provider, ALL, has_power=True)
                    self._hold()
            case ("read", provider, groups, has_power):
                self._read(provider, tuple(groups), has_power=has_power)
            case ("late", provider, seconds):
                device = self.names[provider]
                host.give(sample(device, host.now - seconds, Group.ENERGY, power_watts=WATTS[provider]), provider)
            case ("lost" | "asleep" as what, provider):
                host.give(Sample(device=self.names[provider], **{what: True}), provider)
            case ("hang" | "clear" as what, provider):
                host.hang(self.names[provider].key, provider, state=GpuState.HUNG if what == "hang" else GpuState.OK)
            case ("down" | "up" as what, provider):
                host.down(provider, up=what == "up")
            case ("list" | "unlist" as what, provider):
                listed = (self.names[provider],) if what == "list" else ()
                host.fleet.enumerated(provider, listed, host.now)
            case ("rename", provider):  # its identity cannot be read for a time
                key = {"amd": "a1", "drm": "d1"}[provider]
                known = self.names[provider].key == key
                self.names[provider] = gpu(key="0000:01:00.0" if known else key)
                self.host.fleet.enumerated(provider, (self.names[provider],), host.now)
            case ("release" | "take up" as what,):
                host.fleet.released(what == "release", host.now)
            case ("restart",):
                record = host.fleet.record(host.now)
                self.host = Pair(now=host.now + 1, listed=())
                self.host.fleet.restore(record, self.host.now)
                self.names = {"amd": CARD, "drm": gpu(key="d1")}
                self._list()
        self._hold()

    def _read(self, provider: str, groups: tuple[Group, ...], *, has_power: bool) -> None:
        host, watts = self.host, WATTS[provider]
        host.read(
            self.names[provider],
            *groups,
            provider=provider,
            power_watts=watts if has_power else None,
            energy_counter_joules={"amd": 1e6, "drm": 9e9}[provider] + watts * host.now if has_power else None,
            utilization_ratio=watts / 1_000,
            memory_used_bytes=None if provider == "amd" else watts,
            processes=(ProcessSample(pid=int(watts)),),
        )

    def _hold(self) -> None:
        host = self.host
        shown = host.card  # listed once, whatever happens
        assert sum(host.counted.values()) == 1
        assert shown.device.key == "a1"
        account = shown.energy
        total, seconds = (0.0, 0.0) if account is None else (account.total_joules, account.covered_seconds)
        step, lasted = total - self.totals[0], seconds - self.totals[1]
        assert step >= 0
        assert lasted >= -1e-6
        # Of either alone: their accumulators are far apart.
        assert WATTS["amd"] * lasted - 1e-3 <= step <= WATTS["drm"] * lasted + 1e-3
        self.totals = (total, seconds)


@settings(deadline=None, max_examples=150)
@given(st.lists(STEPS, max_size=25))
@example(
    [("run", ("amd", "drm"), 70), ("down", "amd"), ("run", ("drm",), 10), ("up", "amd"), ("run", ("amd", "drm"), 70)]
)
def test_whatever_comes_in_whatever_order_a_card_is_one_and_its_total_never_falls(
    steps: list[tuple[object, ...]],
) -> None:
    story = Story()
    for step in steps:
        story.live(step)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=15))
def test_what_is_published_is_that_of_the_first_that_has_it(steps: list[tuple[object, ...]]) -> None:
    story = Story()
    for step in steps:
        story.live(step)
        host = story.host
        for provider in ("amd", "drm"):
            story.live(("clear", provider))
            story.live(("list", provider))
            story.live(("up", provider))
        host.fleet.released(False, host.now)
        host.wait(0.5)
        for provider in ("drm", "amd"):
            story._read(provider, ALL, has_power=True)
        shown = host.card
        assert (shown.state, shown.provider) == (GpuState.OK, "amd")
        assert (shown.sample.power_watts, shown.sample.utilization_ratio) == (100.0, 0.1)
        assert shown.sample.memory_used_bytes == 200.0
        assert shown.sample.processes == (ProcessSample(pid=100),)
        story._hold()
