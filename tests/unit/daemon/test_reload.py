"""A reload takes over all of a configuration or nothing of it, whatever the file says, and the next one as well."""

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Config, ConfigError, LogConfig, MetricsConfig, SamplingConfig, WebConfig, WorkersConfig
from exporter.daemon.changes import held_back
from exporter.daemon.reload import Reloader
from exporter.fleet import Fleet
from exporter.systemd import Systemd

LIVE = st.builds(
    Config,
    log=st.builds(LogConfig, level=st.sampled_from(["info", "debug"]), format=st.sampled_from(["logfmt", "json"])),
    metrics=st.builds(MetricsConfig, created=st.booleans(), disable=st.sampled_from([(), ("gpu_up",)])),
    workers=st.builds(WorkersConfig, release_seconds=st.sampled_from([60.0, 1800.0])),
    web=st.builds(WebConfig, max_requests=st.integers(0, 2)),
)
FIXED = st.sampled_from(
    [
        {},
        {"providers": ("amd",)},
        {"simulate": "x.yaml"},
        {"sampling": SamplingConfig(load_seconds=2.0)},
        {"web": WebConfig(telemetry_path="/x")},
    ]
)
CONFIGS = st.builds(lambda live, fixed: msgspec.structs.replace(live, **fixed), LIVE, FIXED)
BROKEN = st.builds(ConfigError, st.lists(st.text(), min_size=1, max_size=3)) | st.builds(RuntimeError, st.text())


def reading(answers: list[Config | Exception]) -> Callable[[], Config]:
    def read() -> Config:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read


@given(LIVE, st.lists(CONFIGS | BROKEN, max_size=8))
def test_what_is_in_force_is_what_one_file_said(first: Config, answers: list[Config | Exception]) -> None:
    applied: list[Config] = []
    fleet = Fleet([], SamplingConfig())
    reloader = Reloader(first, reading(answers.copy()), None, applied.append, fleet, Systemd({}, 1))
    holds = first
    for answer in answers:
        reloader.reload()
        good = isinstance(answer, Config) and not held_back(holds, answer)
        if isinstance(answer, Config) and good:
            holds = answer
            assert applied[-1] == answer
        assert reloader.config == holds
        assert reloader.well is good
        assert fleet.world(0.0).config_reloaded is good
        assert (applied or [first])[-1] == holds
