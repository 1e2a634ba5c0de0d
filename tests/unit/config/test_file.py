from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import (
    Config,
    ConfigError,
    LogConfig,
    MetricsConfig,
    SamplingConfig,
    WebConfig,
    load_config,
    parse_config,
)
from exporter.providers import PROVIDERS

KNOWN = ", ".join(PROVIDERS)

Problems = Callable[[str | bytes], list[str]]
Load = Callable[[str], Config]


@pytest.fixture
def problems(tmp_path: Path) -> Problems:
    def load(text: str | bytes) -> list[str]:
        path = tmp_path / "c.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        messages = list(caught.value.messages)
        assert all(message.startswith(f"{path}: ") for message in messages)
        assert all(message.isprintable() for message in messages)
        return [message.removeprefix(f"{path}: ") for message in messages]

    return load


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str) -> Config:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return load_config(path)

    return load


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}", "web:\n  # max_requests: 3\n", "\ufeff"])
def test_what_is_not_given_keeps_its_default(load: Load, text: str) -> None:
    assert load(text) == Config()


def test_every_option_is_read(load: Load, tmp_path: Path) -> None:
    config = load(
        """
providers: [simulated]
simulate: rig.yaml
web: {listen_addresses: [":9000", "[::1]:9001"], telemetry_path: /.gpu/..metrics, max_requests: 7}
sampling: {energy_seconds: 0.5, load_seconds: 2, state_seconds: 1e1, processes_seconds: 20,
           deadline_seconds: 1, open_deadline_seconds: 9}
metrics: {disable: [gpu_pcie_*, gpu_up], links: each}
log: {level: debug, format: json}
"""
    )
    assert config == Config(
        providers=("simulated",),
        simulate=str(tmp_path / "rig.yaml"),
        web=WebConfig(listen_addresses=(":9000", "[::1]:9001"), telemetry_path="/.gpu/..metrics", max_requests=7),
        sampling=SamplingConfig(
            energy_seconds=0.5,
            load_seconds=2.0,
            state_seconds=10.0,
            processes_seconds=20.0,
            deadline_seconds=1.0,
            open_deadline_seconds=9.0,
        ),
        metrics=MetricsConfig(disable=("gpu_pcie_*", "gpu_up"), links="each"),
        log=LogConfig(level="debug", format="json"),
    )


def test_all_problems_are_reported_together_each_with_its_path(problems: Problems) -> None:
    assert problems(
        """
web:
  listen_addresses: [127.0.0.1, "::1:80", "host:99999"]
  telemetry_path: metrics
  max_requests: 4
  max_requests: 5
  telemetry_pth: /x
sampling:
  energy_seconds: fast
  load_seconds: true
  state_seconds: 0
  processes_seconds: .nan
metrics:
  disable: [gpu_powr_watts, gpu_up]
log: verbose
provider: [nvidia]
providers: [nvida]
"""
    ) == [
        "web.max_requests: given twice (line 6)",
        'web.listen_addresses[0]: expected HOST:PORT, [IPV6]:PORT or :PORT with a port up to 65535, got "127.0.0.1"',
        'web.listen_addresses[1]: an IPv6 address needs brackets, such as [::1]:10042, got "::1:80"',
        'web.listen_addresses[2]: expected HOST:PORT, [IPV6]:PORT or :PORT with a port up to 65535, got "host:99999"',
        'web.telemetry_path: expected a path such as /metrics, got "metrics"',
        'web.telemetry_pth: unknown option, did you mean "telemetry_path"?',
        'sampling.energy_seconds: expected a number of seconds from 0.05 to 60, got "fast"',
        "sampling.load_seconds: expected a number of seconds from 0.1 to 600, got true",
        "sampling.state_seconds: expected a number of seconds from 0.1 to 3600, got 0",
        "sampling.processes_seconds: expected a number of seconds from 0.1 to 3600, got nan",
        'metrics.disable[0]: no metric matches "gpu_powr_watts", did you mean "gpu_power_watts"?',
        'log: expected options by name, got "verbose"',
        'provider: unknown option, did you mean "providers"?',
        f'providers[0]: no provider has the name "nvida"; there are {KNOWN}, did you mean "nvidia"?',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n", "the file: expected options by name, got a list"),
        ("just words", 'the file: expected options by name, got "just words"'),
        ("metrics: {created: 1}", "metrics.created: expected true or false, got 1"),
        ("metrics: {created: yes}", 'metrics.created: expected true or false, got "yes"'),
        ("web: {max_requests: 1.5}", "web.max_requests: expected a whole number from 0 to 1000, got 1.5"),
        ("web: {max_requests: -1}", "web.max_requests: expected a whole number from 0 to 1000, got -1"),
        ("web: {max_requests: 010001}", "web.max_requests: expected a whole number from 0 to 1000, got 10001"),
        ("web: {max_requests: null}", "web.max_requests: expected a whole number from 0 to 1000, got nothing"),
        ("web: {max_requests: yes}", 'web.max_requests: expected a whole number from 0 to 1000, got "yes"'),
        ("web: {listen_addresses: []}", "web.listen_addresses: expected from 1 to 16 entries, got 0"),
        ("web: {listen_addresses: localhost:1}", 'web.listen_addresses: expected a list, got "localhost:1"'),
        ("web: {listen_addresses: [9000]}", "web.listen_addresses[0]: expected text, got 9000"),
        ("web: {telemetry_path: /-/ready}", "web.telemetry_path: /-/ready is served already"),
        ("web: {telemetry_path: /device}", "web.telemetry_path: /device is served already"),
        ("web: {telemetry_path: /device/x}", "web.telemetry_path: /device/x is served already"),
        ("web: {telemetry_path: /a/..}", 'web.telemetry_path: expected a path such as /metrics, got "/a/.."'),
        ("web: {telemetry_path: /./a}", 'web.telemetry_path: expected a path such as /metrics, got "/./a"'),
        ("metrics: {links: all}", 'metrics.links: expected one of each, total, got "all"'),
        ("log: {level: loud}", 'log.level: expected one of debug, error, info, warn, got "loud"'),
        ("simulate: ''", "simulate: expected the path of a file"),
        (
            "sampling: {load_seconds: -.inf}",
            "sampling.load_seconds: expected a number of seconds from 0.1 to 600, got -inf",
        ),
        (
            "sampling: {load_seconds: 1:30}",
            'sampling.load_seconds: expected a number of seconds from 0.1 to 600, got "1:30"',
        ),
        (
            "sampling: {load_seconds: " + "9" * 400 + "}",
            "sampling.load_seconds: expected a number of seconds from 0.1 to 600, got a number of more than 64 bits",
        ),
        ("a\x7f: 1", "line 1, column 2: the character '\\x7f' is not allowed"),
        ('"a\\nb": 1', '"a\\nb": unknown option'),
        ("{[1]: 2}", "the file: a key is not a name (line 1)"),
        ("log: !!python/name:os.system x", 'log: cannot be read as "tag:yaml.org,2002:python/name:os.system": "x"'),
        ("log: {level: !!binary aGk=}", 'log.level: cannot be read as "tag:yaml.org,2002:binary": "aGk="'),
        ("web: {max_requests: !!int x}", 'web.max_requests: cannot be read as "tag:yaml.org,2002:int": "x"'),
    ],
)
def test_a_wrong_value_is_named(problems: Problems, text: str, message: str) -> None:
    found = problems(text)
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"web:\n\tmax_requests: 1\n", "line 2, column 1: while scanning for the next token found character"),
        (b"a: [1, 2", "line 1, column 9: while parsing a flow sequence expected ',' or ']'"),
        (b"a: 1\n---\nb: 2\n", "line 2, column 1: expected a single document in the stream but found another document"),
        (b"\xff\xfe\x00", "not UTF-8 text (byte 0)"),
        (b"web: \x80", "not UTF-8 text (byte 5)"),
        (b"\x00\x01\x02", "line 1, column 1: the character '\\x00' is not allowed"),
        (b"\x7fELF" + bytes(1000), "line 1, column 1: the character '\\x7f' is not allowed"),
        (b"a: &x [1]\nb: *x\n", "line 2, column 4: aliases (*name) are not supported"),
        (b"a: &a [*a]\n", "line 1, column 8: aliases (*name) are not supported"),
        (b"[" * 100_000, "line 1, column 33: nested deeper than 32 levels"),
        (b"{a: " * 5_000, "line 1, column"),
        (b"- " * 5_000, "line 1, column"),
        (b"a: %x\n", "line 1, column 4"),
        (b"#" * ((1 << 20) + 1), "larger than 1 MiB"),
        (b"web: {max_requests: 1e}", 'web.max_requests: expected a whole number from 0 to 1000, got "1e"'),
    ],
)
def test_what_is_no_yaml_is_named_with_its_place(problems: Problems, text: bytes, message: str) -> None:
    assert len(found := problems(text)) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devices: [{model: H100-SXM}]", "this is a scenario, no configuration; give it to --simulate"),
        ("basic_auth_users: {a: b}", "this is a web configuration, no configuration; give it to --web.config.file"),
        ("rate_limit: {}\ndevices: []", "this is a web configuration, no configuration; give it to --web.config.file"),
    ],
)
def test_a_file_of_another_kind_is_named_as_what_it_is(problems: Problems, text: str, said: str) -> None:
    assert problems(text) == [said]


def test_the_number_of_messages_is_bounded(problems: Problems) -> None:
    found = problems("".join(f"key{n}: 1\n" for n in range(4_000)))
    assert len(found) == 51
    assert found[-1] == "and more like these"


def test_the_number_of_values_is_bounded(problems: Problems) -> None:
    said = "there are too many values before this one"
    assert problems("".join(f"key{n}: 1\n" for n in range(20_000))) == [f"line 5000, column 10: {said}"]
    assert problems("[" + "x," * 20_000 + "]") == [f"line 1, column 20000: {said}"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert caught.value.messages == (f"{path}: {reason}",)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.sampled_from(["gpu_*", ":1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _section(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Values of any type under the names that there are, and some that there are not."""
    names = st.sampled_from(kind.__struct_fields__) | st.text(max_size=5)
    return ANY | st.dictionaries(names, ANY, max_size=4)


DEFAULT = Config()
TREES = st.fixed_dictionaries(
    {},
    optional={
        name: _section(type(value)) if isinstance(value := getattr(DEFAULT, name), msgspec.Struct) else ANY
        for name in Config.__struct_fields__
    },
)


@given(TREES)
def test_a_value_of_any_type_at_any_place_is_taken_or_named_with_its_path(tree: dict[str, Any]) -> None:
    # As YAML that quotes whatever is text: JSON has no way to write some numbers.
    data = yaml.safe_dump(tree, allow_unicode=False).encode()
    messages: tuple[str, ...] = ()
    try:
        assert isinstance(parse_config(data, "c.yaml"), Config)
    except ConfigError as e:
        messages = e.messages or ("",)
    for message in messages:
        assert message.startswith("c.yaml: ")
        assert message.isprintable()
        assert len(message) < 1000
