"""Files of `--web.config.file`: what is refused, in which words, and that no secret is among them."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import ConfigError
from exporter.web.guard import Guard
from exporter.web.protection.form import HEADERS, Form, TlsForm
from exporter.web.protection.names import CIPHERS, CURVES
from exporter.web.protection.settings import Settings

HASH = "$2b$04$Na1CJzGJlAg/sXfcFUbuO.Pbio9HL6DQRTZsyktkrN3ViOcMBCQf."
PRIVATE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


def problems(directory: Path, text: str | bytes) -> list[str]:
    path = directory / "web.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        Guard.load(str(path))
    assert all(message.startswith(f"{path}: ") for message in caught.value.messages)
    assert str(caught.value) == "\n".join(caught.value.messages)
    return [message.removeprefix(f"{path}: ") for message in caught.value.messages]


def test_every_problem_is_told_with_its_key_path_and_no_secret(tmp_path: Path) -> None:
    text = f"""
tls_server_config:
  cert_fil: a
  key: [{PRIVATE}]
  min_version: TLS9
  max_version: TLS11
  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA, TLS_AES_128_GCM_SHA25]
  curve_preferences: [P256]
  client_auth_type: RequireAnyClientCert
  client_allowed_sans: [""]
  prefer_server_cipher_suites: 1
http_server_config:
  http2: "no"
  headers: {{X-Frame-Options: deny, Server: mine, X-XSS-Protection: "a\\nb"}}
basic_auth_users:
  alice: {PRIVATE}
  "bob:x": {HASH}
  carol: [{PRIVATE}]
  dave: {HASH.replace("$04", "$17")}
  alice: {PRIVATE}
rate_limit: {{interval: 5, burst: -1}}
users: {{}}
"""
    found = problems(tmp_path, text)
    assert found == [
        "basic_auth_users.alice: given twice (line 20)",
        'tls_server_config.cert_fil: unknown option, did you mean "cert_file"?',
        "tls_server_config.key: expected text",
        'tls_server_config.min_version: expected one of TLS10, TLS11, TLS12, TLS13, got "TLS9"',
        'tls_server_config.max_version: nothing below TLS 1.2 is served, got "TLS11"',
        (
            'tls_server_config.cipher_suites[0]: unknown cipher suite "TLS_RSA_WITH_RC4_128_SHA", '
            'did you mean "TLS_RSA_WITH_AES_128_CBC_SHA"?'
        ),
        (
            'tls_server_config.cipher_suites[1]: unknown cipher suite "TLS_AES_128_GCM_SHA25", '
            'did you mean "TLS_AES_128_GCM_SHA256"?'
        ),
        'tls_server_config.curve_preferences[0]: expected one of CurveP256, CurveP384, CurveP521, X25519, got "P256"',
        (
            "tls_server_config.client_auth_type: RequireAnyClientCert asks for certificates that nobody verifies, "
            "which is not served; use RequireAndVerifyClientCert"
        ),
        "tls_server_config.client_allowed_sans[0]: expected a name, an address or a URI",
        "tls_server_config.prefer_server_cipher_suites: expected true or false, got 1",
        'http_server_config.http2: expected true or false, got "no"',
        "http_server_config.headers.Server: this header cannot be set",
        "http_server_config.headers.X-XSS-Protection: expected printable ASCII",
        "basic_auth_users.alice: expected a bcrypt hash, such as htpasswd -nBC 10 USER writes",
        'basic_auth_users."bob:x": a name with a colon cannot log in',
        "basic_auth_users.carol: expected text",
        "basic_auth_users.dave: expected a bcrypt hash of cost 4 to 16, got 17",
        "rate_limit.interval: expected text, got 5",
        "rate_limit.burst: expected a whole number from 0 to 1e+06, got -1",
        "users: unknown option",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_server_config: {min_version: TLS12}", ["tls_server_config.cert_file: needed, or cert"]),
        (
            "tls_server_config: {cert: a, cert_file: b, key: c}",
            ["tls_server_config.cert: given, and cert_file as well"],
        ),
        (
            "tls_server_config: {cert: a, key: b, client_ca: c}",
            ["tls_server_config.client_auth_type: needed, where there is a CA of clients"],
        ),
        (
            "tls_server_config: {cert: a, key: b, client_auth_type: RequireAndVerifyClientCert}",
            ["tls_server_config.client_ca_file: needed for RequireAndVerifyClientCert"],
        ),
        (
            (
                "tls_server_config: {cert: a, key: b, client_ca: c, client_auth_type: VerifyClientCertIfGiven, "
                "client_allowed_sans: [x]}"
            ),
            ["tls_server_config.client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert"],
        ),
        (
            "tls_server_config: {cert: a, key: b, min_version: TLS13, max_version: TLS12}",
            ["tls_server_config.max_version: below min_version"],
        ),
        ("rate_limit: {interval: 1s}", ["rate_limit.burst: needed"]),
    ],
)
def test_options_that_do_not_go_together_are_refused(text: str, said: list[str], tmp_path: Path) -> None:
    found = problems(tmp_path, text)
    for words in said:
        assert any(words in each for each in found), found


def test_the_values_of_the_closed_headers_are_closed(tmp_path: Path) -> None:
    assert problems(
        tmp_path, "http_server_config: {headers: {X-Frame-Options: all, X-Content-Type-Options: sniff}}"
    ) == [
        'http_server_config.headers.X-Frame-Options: expected deny or sameorigin, got "all"',
        'http_server_config.headers.X-Content-Type-Options: expected nosniff, got "sniff"',
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"basic_auth_users: {PRIVATE}",
        f"basic_auth_users: [{PRIVATE}]",
        f"basic_auth_users: {{alice: !secret {PRIVATE}}}",
        f"basic_auth_users: {{alice: !!binary {PRIVATE}}}",
        f"basic_auth_users: {{'a: cannot be read': !secret {PRIVATE}}}",
        f"tls_server_config: {PRIVATE}",
        f"tls_server_config: {{key: {{a: {PRIVATE}}}}}",
        f"tls_server_config: {{key: !secret {PRIVATE}}}",
        f"tls_server_config: {{cert: x, key_file: |\n  -----BEGIN PRIVATE KEY-----\n  {PRIVATE}\n }}",
        f"tls_server_config:\n  cert: x\n  key_file: |\n    -----BEGIN PRIVATE KEY-----\n    {PRIVATE}\n",
        f"tls_server_config:\n  cert: x\n  key: |\n    -----BEGIN PRIVATE KEY-----\n    {PRIVATE}\n",
        f"{PRIVATE}",
        f"- {PRIVATE}",
        f"key: &{PRIVATE} x\nb: *{PRIVATE}",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_told(text: str, tmp_path: Path) -> None:
    assert PRIVATE[:8] not in "\n".join(problems(tmp_path, text))


def test_what_is_read_shows_no_secret_when_it_is_printed(tmp_path: Path) -> None:
    form = Form(tls_server_config=TlsForm(key=PRIVATE), basic_auth_users={"alice": HASH})
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {{alice: {HASH}}}")
    guard = Guard.load(str(path))
    for shown in (repr(form), str(form.tls_server_config), repr(guard), repr(Settings(str(path)))):
        assert PRIVATE not in shown
        assert HASH[7:20] not in shown


def test_files_that_are_missing_or_no_files_are_told_by_key_and_name(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    text = """
tls_server_config:
  cert_file: none.pem
  key_file: directory
  client_ca_file: large
  client_auth_type: RequireAndVerifyClientCert
"""
    assert problems(tmp_path, text) == [
        "tls_server_config.cert_file: none.pem: No such file or directory",
        "tls_server_config.key_file: directory: Is a directory",
        "tls_server_config.client_ca_file: large: larger than 1 MiB",
    ]
    missing = str(tmp_path / "no.yml")
    with pytest.raises(ConfigError) as caught:
        Guard.load(missing)
    assert caught.value.messages == (f"{missing}: No such file or directory",)


def test_pem_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("nonsense")
    (tmp_path / "server.key").write_text("nonsense")
    text = "tls_server_config: {cert_file: server.pem, key_file: server.key}"
    assert problems(tmp_path, text) == ["tls_server_config.cert_file: not a certificate in PEM form (server.pem)"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "tls_server_config:\n", "basic_auth_users: {}\n"])
def test_an_empty_file_asks_nothing_of_clients(text: str, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text(text)
    guard = Guard.load(str(path))
    assert not guard.secure
    assert guard.headers == {}
    assert guard.problems == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=10,
)
KEYS = {
    "tls_server_config": (
        *("cert_file", "key_file", "cert", "key", "client_ca_file", "client_ca", "client_auth_type", "min_version"),
        *("max_version", "client_allowed_sans", "cipher_suites", "curve_preferences", "prefer_server_cipher_suites"),
    ),
    "http_server_config": ("http2", "headers"),
    "basic_auth_users": ("alice", "bob"),
    "rate_limit": ("interval", "burst"),
}
GOOD = st.sampled_from([*CIPHERS, *CURVES, *HEADERS, "TLS12", "TLS13", "NoClientCert", "1s", HASH, "web.yml", "x"])


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Files that are nearly good."""
    return {
        section: draw(st.dictionaries(st.sampled_from(keys), VALUES | GOOD | st.lists(GOOD, max_size=3)) | VALUES)
        for section, keys in KEYS.items()
        if draw(st.booleans())
    }


@given(files() | VALUES)
def test_no_file_breaks_the_reading(tree: Any) -> None:
    check(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "web.yml"
        path.write_bytes(data)
        try:
            told: tuple[str, ...] = ()
            guard: Guard | None = Guard.load(str(path))
        except ConfigError as error:
            guard, told = None, error.messages
        assert (guard is None) == bool(told)
        assert guard is None or not guard.secure  # there is no key that it could have
        assert all(message.startswith(str(path)) and "\n" not in message for message in told)
