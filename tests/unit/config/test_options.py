import pytest

from exporter.config import Config, ConfigError, LogConfig, SamplingConfig, WebConfig, is_averaged, override
from exporter.providers import PROVIDERS

KNOWN = ", ".join(PROVIDERS)
NAMES = {"web.listen_addresses": "--web.listen-address", "log.level": "--log.level", "providers": "--provider"}


def test_options_win_over_the_file_and_leave_the_rest_of_it() -> None:
    base = Config(providers=("amd",), web=WebConfig(max_requests=3), log=LogConfig(format="json"))
    given_ = {"providers": ["nvidia"], "web": {"listen_addresses": [":1"]}, "log": {"level": "debug"}}
    assert override(base, given_, NAMES) == Config(
        providers=("nvidia",),
        web=WebConfig(max_requests=3, listen_addresses=(":1",)),
        log=LogConfig(format="json", level="debug"),
    )
    assert override(base, {}, NAMES) == base


def test_problems_are_reported_together_under_the_names_of_the_options() -> None:
    with pytest.raises(ConfigError) as caught:
        override(Config(), {"web": {"listen_addresses": [":1", "x"]}, "providers": ["intel"]}, NAMES)
    assert caught.value.messages == (
        '--web.listen-address: expected HOST:PORT, [IPV6]:PORT or :PORT with a port up to 65535, got "x"',
        f'--provider: no provider has the name "intel"; there are {KNOWN}',
    )


@pytest.mark.parametrize(
    ("kind", "window", "seconds"),
    [("average", 1.0, 1.0), ("average", None, 0.093), ("instant", 0.0, 0.093), (None, None, 0.093)],
)
def test_energy_is_read_once_a_second_where_the_sensor_averages_over_that(
    kind: str | None, window: float | None, seconds: float
) -> None:
    averaged = is_averaged(kind, window)
    assert SamplingConfig().energy_period(averaged=averaged) == seconds
    assert SamplingConfig(energy_seconds=5.0).energy_period(averaged=averaged) == 5.0
