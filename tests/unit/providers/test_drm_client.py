"""What one file of /proc/PID/fdinfo tells of a DRM client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.drm_client import Client, Engine, parse_fdinfo
from tests.kernel import fdinfo

KIB = 1024.0


def test_units_are_understood() -> None:
    text = fdinfo(drm_resident_vram="5 KiB", drm_resident_gtt="2 MiB", drm_resident_cpu="7", drm_memory_x="1 GiB")
    client = parse_fdinfo(text.encode())
    assert client is not None
    assert client.memory_bytes == {"vram": 5 * KIB, "gtt": 2 * KIB**2, "cpu": 7.0, "x": KIB**3}


def test_what_is_resident_is_preferred_to_the_older_key() -> None:
    client = parse_fdinfo(
        fdinfo(
            drm_memory_vram="9 KiB", drm_memory_gtt="4 KiB", drm_resident_vram="5 KiB", drm_total_vram="99 KiB"
        ).encode()
    )
    assert client is not None
    assert client.memory_bytes == {"vram": 5 * KIB, "gtt": 4 * KIB}


def test_engines_of_an_i915_are_understood() -> None:
    text = (
        "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-engine-render:\t9288864723 ns\n"
        "drm-engine-copy:\t2035071108 ns\ndrm-engine-video:\t0 ns\ndrm-engine-capacity-video:\t2\n"
        "drm-resident-system0:\t3 MiB\ndrm-resident-local0:\t0\n"
    )
    assert parse_fdinfo(text.encode()) == Client(
        "i915",
        "0000:00:02.0",
        "7",
        {"system0": 3 * KIB**2, "local0": 0.0},
        {"render": Engine(9288864723.0), "copy": Engine(2035071108.0), "video": Engine(0.0, None, 2.0)},
    )


@pytest.mark.parametrize("text", ["", "pos:\t0\nflags:\t02\n", "drm-driver:\n", "\x00\xff", "drm-driver"])
def test_what_is_no_drm_file_is_no_client(text: str) -> None:
    assert parse_fdinfo(text.encode("latin-1")) is None


@given(st.binary(max_size=300))
def test_garbage_never_raises(raw: bytes) -> None:
    client = parse_fdinfo(b"drm-driver: amdgpu\n" + raw)
    assert client is not None
    assert all(value >= 0 or value < 0 for value in client.memory_bytes.values())


@pytest.mark.parametrize("value", ["N/A", "5 parsecs", "", "5.5 KiB"])
def test_an_amount_that_is_not_understood_is_no_amount(value: str) -> None:
    client = parse_fdinfo(fdinfo(drm_memory_vram=value).encode())
    assert client is not None
    assert client.memory_bytes == {}


def test_an_xe_counts_cycles() -> None:
    text = (
        "pos:\t0\nflags:\t0100002\nmnt_id:\t26\nino:\t685\ndrm-driver:\txe\ndrm-client-id:\t3\n"
        "drm-pdev:\t0000:03:00.0\ndrm-total-system:\t0\ndrm-resident-system:\t0\ndrm-total-gtt:\t192 KiB\n"
        "drm-resident-gtt:\t192 KiB\ndrm-total-vram0:\t23992 KiB\ndrm-shared-vram0:\t16 MiB\ndrm-active-vram0:\t0\n"
        "drm-resident-vram0:\t23000 KiB\ndrm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\n"
        "drm-cycles-ccs:\t0\ndrm-total-cycles-ccs:\t7655183225\ndrm-engine-capacity-ccs:\t4\n"
    )
    assert parse_fdinfo(text.encode()) == Client(
        "xe",
        "0000:03:00.0",
        "3",
        {"system": 0.0, "gtt": 192 * KIB, "vram0": 23000 * KIB},
        {"rcs": Engine(28257900.0, 7655183225.0), "ccs": Engine(0.0, 7655183225.0, 4.0)},
    )


def test_what_is_allocated_is_taken_where_nothing_is_said_of_what_is_resident() -> None:
    client = parse_fdinfo(
        fdinfo(drm_total_local0="9 KiB", drm_total_system0="4 KiB", drm_resident_system0="1").encode()
    )
    assert client is not None
    assert client.memory_bytes == {"local0": 9 * KIB, "system0": 1.0}


def test_cycles_beside_the_time_are_not_needed() -> None:
    client = parse_fdinfo(fdinfo(drm_engine_gpu="5 ns", drm_cycles_gpu=900, drm_maxfreq_gpu="800 MHz").encode())
    assert client is not None
    assert client.engines == {"gpu": Engine(5.0)}


def test_cycles_without_a_total_and_a_capacity_of_zero_are_no_measure() -> None:
    client = parse_fdinfo(fdinfo(drm_cycles_rcs=900, drm_engine_gfx="5 ns", drm_engine_capacity_gfx=0).encode())
    assert client is not None
    assert client.engines == {"gfx": Engine(5.0)}
