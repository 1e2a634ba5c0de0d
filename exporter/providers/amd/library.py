"""Which amdsmi package can be used on this host, with a library that it understands.

The package must be of the same ROCm release as libamd_smi.so, so the copy that the installed ROCm brings is preferred
to one from PyPI.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from exporter.providers.amd.calls import driver_is_missing, in_words
from exporter.providers.amd.versions import (
    Version,
    library_version,
    match,
    package_release,
    package_version,
    spoken,
    version_of_file,
)
from exporter.providers.protocol import ProviderError

_SHARE = Path("share/amd_smi")
_ROCM_VARIABLES = ("ROCM_PATH", "ROCM_HOME")
_IMPORT_PATH = None
_UNNAMED = ("amdsmi_get_afids_from_cper",)  # up to ROCm 7.13

Wrap = Callable[[Any], Any]


class Library(NamedTuple):
    """An initialised AMD SMI: `close` must be called once for it."""

    module: Any
    version: Version

    def close(self) -> None:
        with contextlib.suppress(Exception), _quiet():
            self.module.amdsmi_shut_down()


def open_library(root: Path, environment: MutableMapping[str, str], wrap: Wrap = lambda module: module) -> Library:
    """Import and initialise the first amdsmi package that fits its library.

    Looks under `root`/opt and in ROCM_PATH before the import path. Sets variables of `environment` that the vendor's
    library reads. `wrap`: as of OpenContext; all calls are made on what it returns, the first of them too. Raises
    ProviderError with the reasons of all packages found.
    """
    # Up to 6.3 every process on the host shares one lock per GPU: one that hangs while holding it would hang us too.
    environment.setdefault("RSMI_MUTEX_THREAD_ONLY", "1")
    reasons: dict[str, None] = {}
    for folder in candidates(root, environment):
        try:
            return _open(folder, root, environment, wrap)
        except _NotInstalledError:
            continue
        except _UnusableError as error:
            reasons[str(error)] = None
    if not reasons and any(tree.is_dir() for tree in _trees(root, environment)):
        raise ProviderError("the Python package amdsmi is not installed, and ROCm brings none")
    raise ProviderError("; ".join(reasons) or "no ROCm was found, and the Python package amdsmi is not installed")


def candidates(root: Path, environment: Mapping[str, str]) -> Iterator[Path | None]:
    """Folders that hold an amdsmi package, best first; None at the end is the import path."""
    seen = set()
    for tree in _trees(root, environment):
        folder = tree / _SHARE
        if (folder / "amdsmi").is_dir() and folder.resolve() not in seen:
            seen.add(folder.resolve())
            yield folder
    yield _IMPORT_PATH


def _trees(root: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return where a ROCm may lie, best first."""
    opt = root / "opt"
    return [
        *(Path(environment[name]) for name in _ROCM_VARIABLES if environment.get(name)),
        *(opt / "rocm", *_newest_first((opt / "rocm").glob("core-*")), *_newest_first(opt.glob("rocm-*"))),
        *_sdk_wheel(),
    ]


class _UnusableError(Exception):
    """A package cannot be used; the text is why."""


class _NotInstalledError(_UnusableError):
    """There is none on the import path."""


def _open(folder: Path | None, root: Path, environment: MutableMapping[str, str], wrap: Wrap) -> Library:
    # The wrapper looks for its library below ROCM_HOME, ROCM_PATH, or a fixed place; up to 6.1 it fails without the
    # variable. A package inside a ROCm tree must get the library of that tree.
    given = any(name in environment for name in _ROCM_VARIABLES)
    tree = folder.parent.parent if folder else None if given else root / "opt/rocm"
    with _quiet(), _variables(environment, tree):
        imported = _import(folder)
        package, release = package_version(imported), package_release(imported)
        module = wrap(_complete(imported))
        try:
            module.amdsmi_init(module.AmdSmiInitFlags.INIT_AMD_GPUS)
        except Exception as error:
            _forget()
            if driver_is_missing(error):
                raise ProviderError("AMD SMI: the amdgpu driver is not loaded") from error
            raise _UnusableError(f"AMD SMI did not start: {in_words(error)}") from error
        version = _version(module)
    library = Library(module, version)
    if not match(release, version):
        library.close()
        _forget()
        raise _UnusableError(
            f"the amdsmi package {package} does not fit libamd_smi.so {spoken(version)}: "
            "it would misread it; install the package of the same ROCm release"
        )
    return library


def _import(folder: Path | None) -> ModuleType:
    _forget()
    place = [str(folder)] if folder else []
    sys.path[:0] = place
    importlib.invalidate_caches()
    try:
        return importlib.import_module("amdsmi")
    except ModuleNotFoundError as error:
        if error.name == "amdsmi":
            raise _NotInstalledError from error
        raise _UnusableError(f"amdsmi cannot be loaded: {in_words(error)}") from error
    except KeyError as error:  # what the wrapper does when it finds no library
        raise _UnusableError("amdsmi does not find libamd_smi.so: is ROCm installed?") from error
    except AttributeError as error:
        raise _UnusableError(
            f"amdsmi does not fit libamd_smi.so: {in_words(error)}; install the package of the same ROCm release"
        ) from error
    except (Exception, SystemExit) as error:
        raise _UnusableError(f"amdsmi cannot be loaded: {in_words(error)}") from error
    finally:
        for entry in place:
            sys.path.remove(entry)


def _complete(module: ModuleType) -> ModuleType:
    """Return the module with the functions that it has and forgets to name."""
    interface = getattr(module, "amdsmi_interface", None)
    for name in _UNNAMED:
        if not hasattr(module, name) and hasattr(interface, name):
            setattr(module, name, getattr(interface, name))
    return module


def _version(module: Any) -> Version:
    version: Version = ()
    # Of an unknown layout nothing is certain but the name of the file.
    with contextlib.suppress(Exception):
        version = library_version(module.amdsmi_get_lib_version())
    if not version:
        with contextlib.suppress(OSError):
            version = version_of_file(Path("/proc/self/maps").read_text())
    return version


def _forget() -> None:
    for name in [name for name in sys.modules if name == "amdsmi" or name.startswith("amdsmi.")]:
        del sys.modules[name]


def _newest_first(paths: Iterator[Path]) -> list[Path]:
    def release(path: Path) -> list[int]:
        return [int(part) for part in path.name.replace("-", ".").split(".") if part.isdigit()]

    return sorted(paths, key=release, reverse=True)


def _sdk_wheel() -> list[Path]:
    """ROCm's own wheels keep the package in a folder that is not importable by name."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("_rocm_sdk_core")
        return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return []


@contextlib.contextmanager
def _variables(environment: MutableMapping[str, str], tree: Path | None) -> Iterator[None]:
    before = {name: environment.get(name) for name in _ROCM_VARIABLES}
    if tree is not None:
        environment.update(dict.fromkeys(_ROCM_VARIABLES, str(tree)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the wrapper prints and the C library writes away from our descriptors 1 and 2."""
    with contextlib.ExitStack() as undo, Path(os.devnull).open("w") as null:
        undo.enter_context(contextlib.redirect_stdout(null))
        undo.enter_context(contextlib.redirect_stderr(null))
        for number in (1, 2):
            kept = os.dup(number)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, number)
            os.dup2(null.fileno(), number)
        yield
