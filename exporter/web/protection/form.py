"""What can be written into a file of `--web.config.file`, in the format of Prometheus' exporter toolkit.

Nothing here is ever shown: `tls_server_config.key` and what stands under `basic_auth_users` are secrets, also in
complaints about them.
"""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from exporter.validation import shown, suggestion
from exporter.web.protection.names import CIPHERS, CURVES, VERSIONS
from exporter.web.protection.rate import seconds

MAX_COST = 16
"""Of a bcrypt hash: each step doubles the time of a login, and 16 takes about four seconds."""

HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""The response headers that may be set, with the values that they may have; (): any."""

_BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
_UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_VERIFIED = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")


def cost(hashed: str) -> int:
    """Return the cost of a bcrypt hash. Raises ValueError where it is none."""
    match = _BCRYPT.fullmatch(hashed)
    if match is None:
        raise ValueError
    return int(match["cost"])


def _hash(hashed: str) -> str | None:
    try:
        steps = cost(hashed)
    except ValueError:
        return "expected a bcrypt hash, such as htpasswd -nBC 10 USER writes"
    return None if 4 <= steps <= MAX_COST else f"expected a bcrypt hash of cost 4 to {MAX_COST}, got {steps}"  # noqa: PLR2004 - the least that bcrypt knows


def _user(name: str) -> str | None:
    if not name:
        return "a user needs a name"
    return "a name with a colon cannot log in" if ":" in name else None


def _file(path: str) -> str | None:
    # What has lines is a certificate or key in the wrong place.
    return None if path and not re.search(r"[\0\r\n]", path) else "expected the path of a file"


def _client_auth(name: str) -> str | None:
    if name in _VERIFIED:
        return None
    if name in _UNVERIFIED:
        return f"{name} asks for certificates that nobody verifies, which is not served; use RequireAndVerifyClientCert"
    return f"expected one of {', '.join(_VERIFIED)}, got {shown(name)}{suggestion(name, _VERIFIED)}"


def _max_version(name: str) -> str | None:
    if name in VERSIONS and VERSIONS[name] is None:
        return f"nothing below TLS 1.2 is served, got {shown(name)}"
    return _version(name)


def _version(name: str) -> str | None:
    return None if name in VERSIONS else f"expected one of {', '.join(VERSIONS)}, got {shown(name)}"


def _cipher(name: str) -> str | None:
    return None if name in CIPHERS else f"unknown cipher suite {shown(name)}{suggestion(name, CIPHERS)}"


def _curve(name: str) -> str | None:
    return None if name in CURVES else f"expected one of {', '.join(CURVES)}, got {shown(name)}"


def _san(name: str) -> str | None:
    return None if name else "expected a name, an address or a URI"


def _header(name: str) -> str | None:
    return None if name in HEADERS else f"this header cannot be set{suggestion(name, HEADERS)}"


def _header_value(value: str) -> str | None:
    # What is invisible or not ASCII would break the head, or split the response.
    return None if re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", value) else "expected printable ASCII"


def _interval(text: str) -> str | None:
    try:
        seconds(text)
    except ValueError as error:
        return str(error)
    return None


_Path = Annotated[str, Meta(extra={"check": _file})]


class TlsForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert_file: _Path | None = None
    key_file: _Path | None = None
    cert: str | None = None
    key: Annotated[str, Meta(extra={"secret": True})] | None = None
    client_ca_file: _Path | None = None
    client_ca: str | None = None
    client_auth_type: Annotated[str, Meta(extra={"check": _client_auth})] = "NoClientCert"
    client_allowed_sans: tuple[Annotated[str, Meta(extra={"check": _san})], ...] | None = None
    min_version: Annotated[str, Meta(extra={"check": _version})] = "TLS12"
    max_version: Annotated[str, Meta(extra={"check": _max_version})] = "TLS13"
    cipher_suites: tuple[Annotated[str, Meta(extra={"check": _cipher})], ...] = ()
    curve_preferences: tuple[Annotated[str, Meta(extra={"check": _curve})], ...] = ()
    prefer_server_cipher_suites: bool = True

    def __repr__(self) -> str:
        return "TlsForm(...)"


class HttpForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    http2: bool = False
    headers: (
        dict[
            Annotated[str, Meta(extra={"check": _header})],
            Annotated[str, Meta(extra={"check": _header_value})],
        ]
        | None
    ) = None


class RateForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interval: Annotated[str, Meta(extra={"check": _interval})] = "0s"
    burst: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


_Users = Annotated[
    dict[Annotated[str, Meta(extra={"check": _user})], Annotated[str, Meta(extra={"check": _hash, "secret": True})]],
    Meta(extra={"secret": True}),
]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tls_server_config: TlsForm = TlsForm()
    http_server_config: HttpForm = HttpForm()
    basic_auth_users: _Users | None = None
    rate_limit: RateForm = RateForm()

    def __repr__(self) -> str:
        return "Form(...)"


_QUOTES = re.compile(r"(: cannot be read|expected options by name|expected a list)(?: as|, got) .*", re.DOTALL)


def without_values(problem: str) -> str:
    """Return a complaint about the structure of the file without what it quotes, which may be a misplaced secret."""
    return _QUOTES.sub(r"\1", problem)
