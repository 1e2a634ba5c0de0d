"""A reload takes over all of what the files say, or nothing: whatever was there before and whatever comes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Config, load_config
from exporter.daemon.changes import changes, is_live
from exporter.daemon.reload import Reloader
from exporter.systemd import Systemd
from exporter.web.guard import Guard
from tests.unit.fuzz.churn import fleet
from tests.unit.fuzz.documents import files, many

HASHES = tuple(f"$2b$04$Na1CJzGJlAg/sXfcFUbuO.Pbio9HL6DQRTZsyktkrN3ViOcMBCQf{end}" for end in ".2")
CONFIGURATIONS = [
    f"{head}{live}".encode()
    for head in ("", "sampling: {load_seconds: 2}\n", "web: {telemetry_path: /x}\n", "providers: [amd]\n")
    for live in (
        "",
        "log: {level: debug}\n",
        "metrics: {created: true, disable: [gpu_up]}\n",
        "workers: {max_descriptors: 99}\n",
    )
]
WEB_CONFIGURATIONS = [
    b"{}",
    f"basic_auth_users: {{alice: '{HASHES[0]}'}}".encode(),
    f"basic_auth_users: {{alice: '{HASHES[1]}', bob: '{HASHES[0]}'}}\nrate_limit: {{interval: 1s, burst: 3}}".encode(),
    b"http_server_config: {headers: {X-Frame-Options: deny}}\nrate_limit: {interval: 2s, burst: 1}",
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def door(guard: Guard) -> tuple[object, ...]:
    """Return all that the guard holds to."""
    bucket = guard._bucket
    users = None if guard._login is None else dict(guard._login.users)
    return (users, dict(guard.headers), None if bucket is None else (bucket.interval, bucket.burst), guard.secure)


@many(150)
@given(
    before=st.tuples(st.sampled_from(CONFIGURATIONS), st.sampled_from(WEB_CONFIGURATIONS)),
    after=st.tuples(
        st.sampled_from(CONFIGURATIONS) | files(CONFIGURATIONS),
        st.sampled_from(WEB_CONFIGURATIONS) | files(WEB_CONFIGURATIONS),
    ),
)
def test_nothing_is_half_applied(before: tuple[bytes, bytes], after: tuple[bytes, bytes], folder: Path) -> None:
    file, web = folder / "c.yaml", folder / "web.yaml"

    def write(contents: tuple[bytes, bytes]) -> None:
        for path, content in zip((file, web), contents, strict=True):
            path.write_bytes(content)

    write(before)
    old = load_config(file)
    guard = Guard.load(str(web))
    applied: list[Config] = []
    host = fleet()
    reloader = Reloader(old, lambda: load_config(file), guard, applied.append, host, Systemd({}, 1))
    held = msgspec.json.encode(reloader.config), door(guard)
    write(after)
    reloader.reload()
    page = host.world(1.0)
    assert page.config_reloaded is reloader.well
    if not reloader.well:
        assert (msgspec.json.encode(reloader.config), door(guard)) == held
        assert applied == []
        return
    new = load_config(file)
    assert reloader.config == new
    assert applied == [new]
    assert door(guard) == door(Guard.load(str(web)))
    assert all(is_live(path) for path in changes(old, new))
