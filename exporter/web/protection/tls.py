"""What a connection is encrypted with, and which client certificates may ask."""

import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec

from exporter.validation import printable
from exporter.web.protection.form import TlsForm
from exporter.web.protection.names import CIPHERS, CURVES, VERSIONS
from exporter.web.secure import SecureStream

MAX_SESSIONS = 256
"""Kept by OpenSSL for clients of TLS 1.2 that cannot keep a session themselves; a context with more is made anew."""
MAX_NAMED = 5
"""Names of a client's certificate that are told in the log."""

_FILES = ("cert_file", "key_file", "cert", "key", "client_ca_file", "client_ca")
_KINDS = {"DNS", "email", "URI"}
_VERIFICATION = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


class TlsError(Exception):
    """`problems`: by key below tls_server_config, empty for the whole of it, what is wrong there."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems.values()))


class Tls:
    """One certificate with its key and rules; never changed, replaced as a whole."""

    def __init__(self, form: TlsForm, cert: bytes, key: bytes, client_ca: bytes | None) -> None:
        """Make a context of PEM text. Raises TlsError."""
        self._made_of = form, cert, key, client_ca
        self.context = _context(form, cert, key, client_ca)
        self.verified = form.client_auth_type
        self.allowed_sans = None if form.client_allowed_sans is None else frozenset(form.client_allowed_sans)
        self._rules = msgspec.structs.replace(form, **dict.fromkeys(_FILES)), client_ca
        """All that decides on a connection but our own certificate."""

    @property
    def full(self) -> bool:
        """Whether OpenSSL keeps so many sessions that the context should be made anew."""
        return self.context.session_stats()["number"] > MAX_SESSIONS

    def anew(self) -> "Tls":
        """Return the same without any session. Raises TlsError."""
        return Tls(*self._made_of)

    def stream(self, taken: socket.socket, readable: Callable[[], None]) -> SecureStream:
        """Return the stream of a new connection, whose peer is to shake hands. Raises OSError when it has left."""
        return SecureStream(taken, readable, self.context)

    def complaint(self, certificate: Mapping[str, Any]) -> str | None:
        """Return why a peer with this verified certificate (empty: none) may not ask anything; None: it may.

        `certificate` is what SSLSocket.getpeercert gives.
        """
        if self.allowed_sans is None or allowed(certificate, self.allowed_sans):
            return None
        names = [printable(name[:100]) for name in islice(subject_names(certificate), MAX_NAMED)]
        return f"none of its names is allowed: {', '.join(names) or 'it has none'}"

    def honours(self, earlier: object) -> bool:
        """Tell whether who came in by `earlier` has met all that is asked for here."""
        return isinstance(earlier, Tls) and earlier._rules == self._rules  # noqa: SLF001 - of the same class


def allowed(certificate: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Tell whether one of these names is exactly one that the certificate is for."""
    return not set(map(_normal, names)).isdisjoint(subject_names(certificate))


def subject_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield the DNS names, e-mail addresses, IP addresses and URIs that the certificate is for."""
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in _KINDS:
            yield value
        elif kind == "IP Address" and (address := _normal(value)) != "<invalid>":
            yield address


def _normal(name: str) -> str:
    """Return an IP address in the one way that it is compared in, anything else as it is."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _context(form: TlsForm, cert: bytes, key: bytes, client_ca: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[form.min_version] or ssl.TLSVersion.TLSv1_2
    context.maximum_version = VERSIONS[form.max_version] or ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Sessions of TLS 1.3 would be kept here or cost two tickets a connection, and scrapers keep their connections.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if form.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    problems = {
        **_choose_ciphers(context, form),
        **_choose_curve(context, form),
        **_load_certificate(context, form, cert, key),
        **_verify_clients(context, form, client_ca),
    }
    if problems:
        raise TlsError(problems)
    return context


def _choose_ciphers(context: ssl.SSLContext, form: TlsForm) -> dict[str, str]:
    names = [name for each in form.cipher_suites if (name := CIPHERS[each]) is not None]
    if not form.cipher_suites:
        return {}
    if not names:
        if context.maximum_version < ssl.TLSVersion.TLSv1_3:
            return {"cipher_suites": "none of these is for TLS 1.2, and max_version allows nothing newer"}
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return {}
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        return {"cipher_suites": "this OpenSSL has none of these"}
    return {}


def _choose_curve(context: ssl.SSLContext, form: TlsForm) -> dict[str, str]:
    if form.curve_preferences:
        try:
            # Python's ssl can name one only; the others that are allowed are then not offered.
            context.set_ecdh_curve(CURVES[form.curve_preferences[0]])
        except (ssl.SSLError, ValueError):
            return {"curve_preferences": f"this OpenSSL does not have {form.curve_preferences[0]}"}
    return {}


def _load_certificate(context: ssl.SSLContext, form: TlsForm, cert: bytes, key: bytes) -> dict[str, str]:
    at_cert = "cert" if form.cert is not None else "cert_file"
    at_key = "key" if form.key is not None else "key_file"
    if not _certificates(cert):
        return {at_cert: "not a certificate in PEM form"}
    try:
        with _as_file(cert) as cert_path, _as_file(key) as key_path:
            context.load_cert_chain(cert_path, key_path, _no_password)
    except _EncryptedError:
        return {at_key: "the key is encrypted, and nobody is there to give its password"}
    except ssl.SSLError as error:
        return _unfit(error.reason, at_cert, at_key)
    except OSError as error:  # no memory or descriptor is to be had, or /proc is missing, where OpenSSL finds the file
        return {at_cert: f"cannot be handed to OpenSSL: {error.strerror or error}"}
    return {}


def _unfit(reason: str | None, at_cert: str, at_key: str) -> dict[str, str]:
    """Return what OpenSSL finds wrong with certificate and key, by the option to be changed."""
    if reason == "KEY_VALUES_MISMATCH":
        return {at_key: "not the key of the certificate"}
    if reason in {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
        return {at_cert: f"OpenSSL does not serve a certificate this weak ({reason})"}
    return {at_key: "not a private key in PEM form"}


def _verify_clients(context: ssl.SSLContext, form: TlsForm, client_ca: bytes | None) -> dict[str, str]:
    context.verify_mode = _VERIFICATION[form.client_auth_type]
    if client_ca is None:
        return {}
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return {"client_ca" if form.client_ca is not None else "client_ca_file": "not certificates in PEM form"}
    return {}


def _certificates(pem: bytes) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("utf-8", "replace"))
    except (ssl.SSLError, ValueError):
        return False
    return True


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give the path of a file in memory: OpenSSL takes certificates by path, and is to get what was read once."""
    descriptor = os.memfd_create("gpu-exporter", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class _EncryptedError(Exception):
    pass


def _no_password() -> str:
    raise _EncryptedError
