import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.providers.amd.library import candidates, open_library
from exporter.providers.protocol import ProviderError


@pytest.fixture(autouse=True)
def no_module_stays() -> Iterator[None]:
    """What a test imported as amdsmi is of that test alone."""
    path = list(sys.path)
    yield
    assert sys.path == path
    sys.modules.pop("amdsmi", None)


def put(tree: Path, text: str = "") -> Path:
    """Lay an amdsmi package below a ROCm tree and return its share folder."""
    folder = tree / "share/amd_smi"
    (folder / "amdsmi").mkdir(parents=True)
    (folder / "amdsmi/__init__.py").write_text(text)
    return folder


def test_the_tree_that_the_environment_names_comes_first_then_the_newest_release(tmp_path: Path) -> None:
    opt = tmp_path / "opt"
    old, new, core = put(opt / "rocm-6.4.3"), put(opt / "rocm-10.0.0"), put(opt / "rocm/core-7.14")
    named = put(tmp_path / "elsewhere")
    found = list(candidates(tmp_path, {"ROCM_PATH": str(tmp_path / "elsewhere"), "ROCM_HOME": ""}))
    assert found == [named, core, new, old, None]


def test_a_tree_reached_by_two_names_is_tried_once(tmp_path: Path) -> None:
    folder = put(tmp_path / "opt/rocm-7.0.2")
    (tmp_path / "opt/rocm").symlink_to("rocm-7.0.2")
    found = list(candidates(tmp_path, {}))
    assert [place.resolve() if place else None for place in found] == [folder, None]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


LATE = """
from types import SimpleNamespace
__version__ = "27.0.0"
AmdSmiInitFlags = SimpleNamespace(INIT_AMD_GPUS=2)
def amdsmi_init(flag): raise OSError("libamd_smi.so.27: cannot open shared object file")
"""

FAILURES = {
    "prints and KeyError": (
        "import os; print('not found'); os.write(1, b'from C'); os.write(2, b'from C'); {}['libamd_smi.so']",
        "does not find libamd_smi.so",
    ),
    "a symbol is missing": (
        "raise AttributeError('libamd_smi.so: undefined symbol: amdsmi_gpu_driver_reload')",
        "does not fit",
    ),
    "a library of another machine": ("raise OSError('wrong ELF class')", "wrong ELF class"),
    "it ends the process": ("raise SystemExit(3)", "SystemExit: 3"),
    "a package of its own is missing": ("import a_package_that_nobody_has", "a_package_that_nobody_has"),
    "the library is loaded at the first call": (
        LATE,
        "did not start: OSError: libamd_smi.so.27: cannot open",
    ),
}


@pytest.mark.parametrize(("text", "reason"), FAILURES.values(), ids=FAILURES)
def test_each_way_to_fail_is_a_reason_and_nothing_on_our_descriptors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    put(tmp_path / "opt/rocm", text)
    environment = {"ROCM_PATH": str(tmp_path / "opt/rocm")}
    before = descriptors()
    with pytest.raises(ProviderError, match=reason):
        open_library(tmp_path, environment)
    assert environment["ROCM_PATH"] == str(tmp_path / "opt/rocm")
    assert "ROCM_HOME" not in environment
    assert capfd.readouterr() == ("", "")
    assert descriptors() == before


WORKS = """
import os
from types import SimpleNamespace
__version__ = "26.2.0"
AmdSmiInitFlags = SimpleNamespace(INIT_AMD_GPUS=2)
seen = {"init": [], "shut": 0, "home": os.environ.get("HOME")}
def amdsmi_init(flag): seen["init"].append(flag)
def amdsmi_shut_down(): seen["shut"] += 1
def amdsmi_get_lib_version(): return {"major": 26, "minor": VERSION, "release": 0, "build": ""}
"""


def test_a_package_that_fits_is_initialised_for_gpus_and_shut_down_once(tmp_path: Path) -> None:
    put(tmp_path / "opt/rocm", WORKS.replace("VERSION", "2"))
    library = open_library(tmp_path, {})
    assert library.version == (26, 2, 0)
    assert library.module.seen["init"] == [2]
    library.close()
    library.close()
    assert library.module.seen["shut"] == 2


def test_one_that_does_not_fit_is_shut_down_and_the_next_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "opt/rocm", WORKS.replace("VERSION", "0"))
    put(tmp_path / "opt/rocm-7.2.0", WORKS.replace("VERSION", "2"))
    library = open_library(tmp_path, {})
    assert Path(library.module.__file__).is_relative_to(tmp_path / "opt/rocm-7.2.0")


def test_other_users_of_the_gpus_cannot_hold_us_up_by_a_lock(tmp_path: Path) -> None:
    put(tmp_path / "opt/rocm", WORKS.replace("VERSION", "2"))
    environment: dict[str, str] = {}
    open_library(tmp_path, environment)
    assert environment == {"RSMI_MUTEX_THREAD_ONLY": "1"}


class Recorder:
    """Stands before a module, as one that records calls does."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._module, name)


def test_all_calls_are_made_on_what_stands_before_the_module(tmp_path: Path) -> None:
    put(tmp_path / "opt/rocm", WORKS.replace("VERSION", "2"))
    wrapped: list[Recorder] = []

    def wrap(module: Any) -> Recorder:
        wrapped.append(Recorder(module))
        return wrapped[-1]

    library = open_library(tmp_path, {}, wrap)
    library.close()
    (recorder,) = wrapped
    assert library.module is recorder
    assert [name for name in recorder.asked if name.startswith("amdsmi_")] == [
        "amdsmi_init",
        "amdsmi_get_lib_version",
        "amdsmi_shut_down",
    ]


def test_a_function_that_the_package_forgets_to_name_is_found(tmp_path: Path) -> None:
    folder = put(tmp_path / "opt/rocm", f"{WORKS.replace('VERSION', '2')}\nfrom amdsmi import amdsmi_interface")
    (folder / "amdsmi/amdsmi_interface.py").write_text("def amdsmi_get_afids_from_cper(record): return [17], 1\n")
    try:
        library = open_library(tmp_path, {})
        assert library.module.amdsmi_get_afids_from_cper(b"") == ([17], 1)
    finally:
        sys.modules.pop("amdsmi.amdsmi_interface", None)
