"""Certificates, authorities and users that are replaced while the daemon serves, well, half or badly."""

import contextlib
import logging
import os
import resource
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.config import ConfigError
from exporter.web.guard import RETRY_SECONDS, Guard
from tests.integration.daemon import Daemon
from tests.integration.test_web_login import ask, header
from tests.integration.test_web_peers import Start
from tests.integration.test_web_tls import refused
from tests.integration.web import PAGE, Served, run, serving
from tests.integration.web_files import HASH, PASSWORD, Authority, write

pytestmark = pytest.mark.integration

TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
LOGIN = f"basic_auth_users: {{scraper: {HASH}}}\n"


class Clock:
    """Goes on by two seconds whenever it is asked to, so that files are looked at again."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def tick(self) -> None:
        self.now += 2.0


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    made = [Authority(tmp_path_factory.mktemp(name)) for name in ("old", "new")]
    for each in made:
        each.signed("client", "DNS:scraper.example")
    return made[0], made[1]


def put(authority: Authority, directory: Path, *names: str) -> None:
    for name in names:
        shutil.copy(authority.directory / name, directory / name)


async def served_by(served: Served, authority: Authority) -> bool:
    """Whether the certificate that is served is this authority's."""
    try:
        client = await served.connect(tls=authority.client())
    except ssl.SSLError:
        return False
    return (await client.get()).body == PAGE


def test_a_certificate_that_is_replaced_is_served_from_the_next_connection_on(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    old, new = authorities
    put(old, tmp_path, "server.pem", "server.key")
    clock = Clock()
    guard = Guard.load(write(tmp_path / "web.yml", TLS), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            kept = await served.connect(tls=old.client())
            assert (await kept.get()).body == PAGE
            put(new, tmp_path, "server.pem", "server.key")
            assert await served_by(served, old)  # files are looked at once a second
            clock.tick()
            assert await served_by(served, new)
            assert not await served_by(served, old)
            assert (await kept.get()).body == PAGE  # a connection is not torn down

    run(test)


def test_secrets_that_kubernetes_replaces_by_renaming_a_link_are_taken_up(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    """`..data` points to a directory of the day, and every file is a link through it; times and sizes may be equal."""
    old, new = authorities
    for name, authority in (("..1", old), ("..2", new)):
        (tmp_path / name).mkdir()
        put(authority, tmp_path / name, "server.pem", "server.key")
        write(tmp_path / name / "web.yml", TLS)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("server.pem", "server.key", "web.yml"):
        (tmp_path / name).symlink_to(Path("..data") / name)
    clock = Clock()
    guard = Guard.load(str(tmp_path / "web.yml"), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            assert await served_by(served, old)
            (tmp_path / "..tmp").symlink_to("..2")
            (tmp_path / "..tmp").rename(tmp_path / "..data")
            clock.tick()
            assert await served_by(served, new)
            assert guard.problems == ()

    run(test)


BROKEN = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "another's": lambda path: shutil.copy(path.with_name("other.key"), path),
    "directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("break_", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_broken_certificate_or_key_leaves_the_last_good_one_and_is_told_once(
    name: str,
    break_: object,
    authorities: tuple[Authority, Authority],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = authorities
    put(old, tmp_path, "server.pem", "server.key")
    shutil.copy(new.directory / "client.key", tmp_path / "other.key")
    clock = Clock()
    guard = Guard.load(write(tmp_path / "web.yml", TLS), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            assert callable(break_)
            break_(tmp_path / name)
            for _ in range(3):
                clock.tick()
                assert await served_by(served, old)
            assert len(guard.problems) == 1
            assert (
                f"tls_server_config.{name.replace('server.pem', 'cert_file').replace('server.key', 'key_file')}"
                in (guard.problems[0])
            )
            errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert errors == [f"what was read before stays in force: {guard.problems[0]}"]
            if (tmp_path / name).is_dir():
                (tmp_path / name).rmdir()
            put(new, tmp_path, "server.pem", "server.key")
            clock.tick()
            assert await served_by(served, new)
            assert guard.problems == ()

    caplog.set_level(logging.INFO, "exporter")
    run(test)


def test_an_authority_that_is_replaced_decides_on_the_next_connection(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    old, new = authorities
    put(old, tmp_path, "server.pem", "server.key", "ca.pem")
    clock = Clock()
    text = f"{TLS[:-2]}, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}}\n"
    guard = Guard.load(write(tmp_path / "web.yml", text), clock=clock)
    of_old = old.client("client")
    of_new = old.client()
    of_new.load_cert_chain(new.directory / "client.pem", new.directory / "client.key")

    async def test() -> None:
        async with serving(guard=guard) as served:
            assert [await refused(served, each) for each in (of_new,)] == [True]
            assert (await (await served.connect(tls=of_old)).get()).body == PAGE
            put(new, tmp_path, "ca.pem")
            clock.tick()
            assert await refused(served, of_old)
            assert (await (await served.connect(tls=of_new)).get()).body == PAGE
            (tmp_path / "ca.pem").write_text("nonsense")
            clock.tick()
            assert await refused(served, of_old)
            assert (await (await served.connect(tls=of_new)).get()).body == PAGE

    run(test)


@contextlib.contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Leave so many descriptors free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", [0, 1])
def test_files_that_are_not_used_are_read_again_when_they_change_and_once_a_minute(
    left: int, authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    old, new = authorities
    put(old, tmp_path, "server.pem", "server.key")
    clock = Clock()
    guard = Guard.load(write(tmp_path / "web.yml", TLS), clock=clock)
    first = guard.encryption()
    put(new, tmp_path, "server.pem", "server.key")
    clock.tick()
    with descriptors(left):
        assert guard.encryption() is first
        assert len(guard.problems) == 1
    for _ in range(3):
        clock.tick()
        assert guard.encryption() is first
    clock.now += RETRY_SECONDS
    assert guard.encryption() is not first
    assert guard.problems == ()


@pytest.mark.parametrize("left", [1, 2])
def test_a_certificate_that_openssl_cannot_be_given_is_told_at_the_start_and_changes_nothing_later(
    left: int, authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    put(authorities[0], tmp_path, "server.pem", "server.key")
    path = write(tmp_path / "web.yml", TLS)
    guard = Guard.load(path, clock=Clock())
    with descriptors(left):
        with pytest.raises(ConfigError) as caught:
            Guard.load(path)
        told = guard.reload()
    problem = "tls_server_config.cert_file: cannot be handed to OpenSSL: Too many open files (server.pem)"
    assert list(caught.value.messages) == told == [f"{path}: {problem}"]
    assert guard.secure
    assert guard.reload() == []


def test_users_are_replaced_and_a_connection_that_is_kept_has_to_log_in_anew(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, LOGIN), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            client = await served.connect()
            login = header(b"scraper", PASSWORD)
            assert (await ask(client, login)).status == 200
            write(path, LOGIN.replace("scraper", "other"))
            clock.tick()
            assert (await ask(client, login)).status == 401
            assert (await ask(client, header(b"other", PASSWORD))).status == 200

    run(test)


HALVES = {
    "empty": "",
    "comment": "# to be written\n",
    "no users": TLS,
    "half a section": "tls_server_config: {cert_file: server.pem, key_file: server.key}\nbasic_auth_us",
    "users without one": f"{TLS}basic_auth_users:\n",
    "no hash": f"{TLS}basic_auth_users: {{scraper: secret}}\n",
    "no yaml": "\t{",
    "binary": "\0\1\2",
    "no TLS": LOGIN,
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES.keys())
def test_no_file_that_is_found_broken_or_half_written_ends_login_or_encryption(
    half: str, authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    old, _ = authorities
    put(old, tmp_path, "server.pem", "server.key")
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, TLS + LOGIN), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            path.write_text(half)
            for _ in range(2):
                clock.tick()
                client = await served.connect(tls=old.client())
                assert (await ask(client)).status == 401
                assert (await ask(client, header(b"scraper", PASSWORD))).status == 200
            assert len(guard.problems) == 1
            assert "secret" not in guard.problems[0]
            path.unlink()
            clock.tick()
            assert (await ask(await served.connect(tls=old.client()))).status == 401
            write(path, TLS + LOGIN.replace("scraper", "other"))
            clock.tick()
            client = await served.connect(tls=old.client())
            assert (await ask(client, header(b"other", PASSWORD))).status == 200
            assert guard.problems == ()

    run(test)


def test_client_certificates_and_their_names_are_not_given_up_by_a_file_that_is_found(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    old, _ = authorities
    put(old, tmp_path, "server.pem", "server.key", "ca.pem")
    clock = Clock()
    path = tmp_path / "web.yml"
    text = f"{TLS[:-2]}, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert"
    guard = Guard.load(write(path, f"{text}, client_allowed_sans: [no.example]}}\n"), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            assert await refused(served, old.client("client"))
            for less in (f"{text}}}\n", TLS, text.replace("RequireAndVerify", "Verify") + "IfGiven}\n"):
                write(path, less)
                clock.tick()
                assert await refused(served, old.client("client"))
                assert await refused(served, old.client())
                assert len(guard.problems) == 1
            write(path, TLS)
            assert guard.reload() == []  # who asks for it gets it
            assert (await (await served.connect(tls=old.client())).get()).body == PAGE

    run(test)


def test_a_reload_on_request_takes_all_or_nothing_and_returns_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, LOGIN), clock=Clock())
    write(path, "http_server_config: {headers: {X-Frame-Options: deny}}\nrate_limit: {interval: 1s}\nuser: {}\n")
    assert guard.reload() == [f"{path}: user: unknown option"]
    assert guard.problems == (f"{path}: user: unknown option",)
    assert guard.headers == {}
    write(path, "http_server_config: {headers: {X-Frame-Options: deny}}\n")
    assert guard.reload() == []
    assert guard.headers == {"X-Frame-Options": "deny"}
    assert guard.problems == ()

    async def test() -> None:
        async with serving(guard=guard) as served:
            assert (await (await served.connect()).get()).headers["x-frame-options"] == "deny"

    run(test)


def test_the_daemon_takes_certificates_and_users_up_by_itself_and_keeps_secrets_to_itself(
    authorities: tuple[Authority, Authority], tmp_path: Path, start_daemon: Start
) -> None:
    old, new = authorities
    put(old, tmp_path, "server.pem", "server.key", "ca.pem")
    path = write(tmp_path / "web.yml", TLS + LOGIN)
    login = dict([header(b"scraper", PASSWORD).decode().strip().split(": ", 1)])
    both = old.client()
    both.load_verify_locations(cadata=new.ca.read_text())
    daemon = start_daemon(
        "--provider=simulated", f"--web.config.file={path}", "--log.level=debug", tls=both, ready=False
    )
    daemon.until(lambda: daemon.get(headers=login).status == 200)
    assert [daemon.get(each).status for each in ("/metrics", "/", "/-/healthy", "/-/ready")] == [401] * 4

    put(new, tmp_path, "server.pem", "server.key")
    daemon.tls = new.client()
    daemon.until(lambda: answers(daemon, login))
    write(tmp_path / "web.yml", TLS)
    daemon.until(lambda: daemon.get().status == 401 and "basic_auth_users: login would end" in daemon.log)
    write(tmp_path / "web.yml", TLS + LOGIN.replace("scraper", "other"))
    daemon.until(lambda: daemon.get(headers=login).status == 401)

    other = dict([header(b"other", PASSWORD).decode().strip().split(": ", 1)])
    shown = daemon.log + daemon.get("/", headers=other).body.decode() + daemon.get(headers=other).body.decode()
    key = (tmp_path / "server.key").read_text().splitlines()[1]
    for secret in (PASSWORD.decode(), HASH, HASH[7:], key, login["Authorization"].split()[1]):
        assert secret not in shown
    assert "Traceback" not in daemon.log


def answers(daemon: Daemon, headers: dict[str, str]) -> bool:
    try:
        return daemon.get(headers=headers).status == 200
    except OSError:
        return False
