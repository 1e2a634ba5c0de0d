import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.config import Config, ConfigError, LogConfig, WebConfig, override
from exporter.web.listen import ListenError, parse_address

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
        '--provider: no provider has the name "intel"; there are nvidia, amd, simulated',
    )


@given(st.text(alphabet="[]:.1a%/ 0٣", max_size=12))
@example("[::1]:0")
@example(":10042")
@example("localhost:65535")
@example("localhost:65536")
@example("::1:80")
def test_the_server_takes_the_addresses_that_the_configuration_takes(address: str) -> None:
    try:
        parse_address(address)
        served = True
    except ListenError:
        served = False
    try:
        override(Config(), {"web": {"listen_addresses": [address]}}, NAMES)
        taken = True
    except ConfigError:
        taken = False
    assert taken == served
