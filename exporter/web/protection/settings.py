"""What a file of `--web.config.file` comes to, together with the files that it names."""

import os
from collections.abc import Mapping
from pathlib import Path

from exporter.config import ConfigError
from exporter.strict_yaml import MAX_BYTES, YamlError, load, read
from exporter.validation import ValidationError, convert, shown
from exporter.web.protection.form import HEADERS, Form, TlsForm, without_values
from exporter.web.protection.names import VERSIONS
from exporter.web.protection.rate import seconds
from exporter.web.protection.tls import Tls, TlsError

Stamp = tuple[int, int, int, int, int]
"""Of a file: device, inode, size, times of the last change of its content and of its inode."""


class Settings:
    """Never changed, replaced as a whole. Nothing of it is ever printed: it holds secrets."""

    def __init__(self, path: str) -> None:
        """Read them all. Raises ConfigError with every problem."""
        self._path = path
        self._problems: list[str] = []
        self.stamps: dict[str, Stamp | None] = {}
        """Of each file that was read, taken before it was."""
        form = self._form()
        self._agree(form)
        self.tls = self._tls(form.tls_server_config)
        if self._problems:
            raise UnreadableError(self._problems, self.stamps)
        self.users: Mapping[str, bytes] = {
            name: hashed.encode("ascii") for name, hashed in (form.basic_auth_users or {}).items()
        }
        self.headers: Mapping[str, str] = form.http_server_config.headers or {}
        self.interval = seconds(form.rate_limit.interval)
        self.burst = form.rate_limit.burst
        self.remarks = tuple(_remarks(form, secure=self.tls is not None))
        """What is not done as the file says, and why."""

    def weaker_than(self, other: "Settings") -> str | None:
        """Return what asks less of clients here than there; None: nothing."""
        here, there = self.tls, other.tls
        if other.users and not self.users:
            return "basic_auth_users: login would end"
        if there is not None:
            if here is None:
                return "tls_server_config: encryption would end"
            if there.verified == "RequireAndVerifyClientCert" and here.verified != there.verified:
                return "tls_server_config.client_auth_type: clients would need no certificate"
            if there.allowed_sans is not None and here.allowed_sans is None:
                return "tls_server_config.client_allowed_sans: every name would be allowed"
        return None

    def _form(self) -> Form:
        content = self._content(self._path, self._path)
        if self._problems:
            raise UnreadableError(self._problems, self.stamps)
        try:
            document = load(content)
            form = convert(document.value, Form, document.problems)
            # What says anything about TLS is taken to want it, also by saying the default.
            self._wants_tls = bool(document.value and document.value.get("tls_server_config"))
            return form  # noqa: TRY300 - an error of `load` or `convert` is what is caught
        except YamlError as error:
            self._problems.append(f"{self._path}: {error}")
        except ValidationError as error:
            self._problems += [f"{self._path}: {without_values(message)}" for message in error.messages]
        raise UnreadableError(self._problems, self.stamps)

    def _agree(self, form: Form) -> None:
        """Complain about options that are good alone, and not together."""
        if seconds(form.rate_limit.interval) > 0 and form.rate_limit.burst == 0:
            self._complain("rate_limit.burst", "needed: with 0 every request would be refused")
        for name, value in (form.http_server_config.headers or {}).items():
            if HEADERS[name] and value not in HEADERS[name]:
                wanted = " or ".join(HEADERS[name])
                self._complain(f"http_server_config.headers.{name}", f"expected {wanted}, got {shown(value)}")
        if self._wants_tls:
            self._agree_on_tls(form.tls_server_config)

    def _agree_on_tls(self, tls: TlsForm) -> None:
        for name in ("cert", "key", "client_ca"):
            both = getattr(tls, name) is not None, getattr(tls, f"{name}_file") is not None
            if all(both):
                self._complain(f"tls_server_config.{name}", f"given, and {name}_file as well; one of them is used")
            elif not any(both) and name != "client_ca":
                self._complain(f"tls_server_config.{name}_file", f"needed, or {name}")
        has_ca = tls.client_ca is not None or tls.client_ca_file is not None
        if has_ca and tls.client_auth_type == "NoClientCert":
            self._complain("tls_server_config.client_auth_type", "needed, where there is a CA of clients")
        if not has_ca and tls.client_auth_type != "NoClientCert":
            self._complain("tls_server_config.client_ca_file", f"needed for {tls.client_auth_type}")
        if tls.client_allowed_sans is not None and tls.client_auth_type != "RequireAndVerifyClientCert":
            self._complain("tls_server_config.client_allowed_sans", "needs client_auth_type RequireAndVerifyClientCert")
        if (tls.min_version, tls.max_version) == ("TLS13", "TLS12"):
            self._complain("tls_server_config.max_version", "below min_version")

    def _tls(self, form: TlsForm) -> Tls | None:
        if not self._wants_tls:
            return None
        cert = self._pem(form.cert, form.cert_file, "cert_file")
        key = self._pem(form.key, form.key_file, "key_file")
        client_ca = self._pem(form.client_ca, form.client_ca_file, "client_ca_file")
        if self._problems or cert is None or key is None:
            return None
        try:
            return Tls(form, cert, key, client_ca)
        except TlsError as error:
            for name, problem in error.problems.items():
                path = getattr(form, name, None) if name.endswith("_file") else None
                self._complain(f"tls_server_config.{name}", f"{problem} ({path})" if path else problem)
        return None

    def _pem(self, inline: str | None, path: str | None, name: str) -> bytes | None:
        if inline is not None:
            return inline.encode()
        if path is None:
            return None
        return self._content(str(Path(self._path).parent / path), f"{self._path}: tls_server_config.{name}: {path}")

    def _content(self, path: str, named: str) -> bytes:
        self.stamps[path] = stamp(path)
        try:
            content = read(path, again=True)
        except (OSError, ValueError) as error:
            self._problems.append(f"{named}: {getattr(error, 'strerror', None) or 'no file can have this name'}")
            return b""
        if len(content) > MAX_BYTES:
            self._problems.append(f"{named}: larger than {MAX_BYTES >> 20} MiB")
        return content

    def _complain(self, key: str, problem: str) -> None:
        self._problems.append(f"{self._path}: {key}: {problem}")


class UnreadableError(ConfigError):
    """`stamps`: of the files that were read before it was clear that they are not used."""

    def __init__(self, messages: list[str], stamps: Mapping[str, Stamp | None]) -> None:
        super().__init__(messages)
        self.stamps = stamps


def stamp(path: str) -> Stamp | None:
    """Return what changes when the file does, also through symbolic links; None: it cannot be looked at."""
    try:
        found = os.stat(path)  # noqa: PTH116 - once a second for each file, as cheap as can be
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _remarks(form: Form, *, secure: bool) -> list[str]:
    tls, said = form.tls_server_config, []
    if secure and form.http_server_config.http2:
        said.append("http_server_config.http2: HTTP/1.1 is served")
    if VERSIONS[tls.min_version] is None:
        said.append(
            f"tls_server_config.min_version: {tls.min_version} is obsolete, TLS 1.2 is the least that is served"
        )
    if len(tls.curve_preferences) > 1:
        said.append(f"tls_server_config.curve_preferences: only {tls.curve_preferences[0]} is offered")
    return said
