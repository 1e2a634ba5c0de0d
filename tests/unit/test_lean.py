import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from exporter.lean import SELDOM, instead

ROOT = Path(__file__).parents[2]


def run(script: str) -> str:
    """Run it in an interpreter of its own, as it changes what is loaded."""
    done = subprocess.run([sys.executable, "-c", dedent(script)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SELDOM)
def test_a_postponed_module_is_loaded_when_something_of_it_is_used(name: str) -> None:
    script = f"""
        import importlib, sys
        from exporter.lean import postpone
        postpone(("{name}",))
        import {name} as before
        assert before.__spec__ is None
        names = [n for n in {{names!r}} if n != "__getattr__"]
        used = [getattr(before, n) for n in names]
        import {name} as after
        assert after.__spec__ is not None
        assert used == [getattr(after, n) for n in names]
        assert not hasattr(before, "there_is_no_such_thing")
        print(len(used))
    """
    names = [n for n in vars(__import__(name)) if not n.startswith("__")]
    assert int(run(script.replace("{names!r}", repr(names)))) == len(names) > 5


@pytest.mark.parametrize("name", SELDOM)
def test_one_name_of_a_postponed_module_can_be_imported(name: str) -> None:
    wanted = next(n for n, value in vars(__import__(name)).items() if callable(value) and not n.startswith("_"))
    run(f"""
        from exporter.lean import postpone
        postpone(("{name}",))
        from {name} import {wanted}
        import {name}
        assert {name}.{wanted} is {wanted}
        assert {name}.__spec__ is not None
    """)


def test_nothing_is_loaded_before_signals_are_held() -> None:
    loaded = run("""
        import sys
        before = set(sys.modules)
        import exporter.__main__
        print(*sorted(set(sys.modules) - before))
    """)
    ours = {name for name in loaded.split() if name.startswith("exporter.")}
    assert ours == {"exporter.__main__", "exporter.early"}
    assert "typing" not in loaded.split(), "it takes most of the time in which a signal would end us"


def test_what_is_loaded_already_is_not_postponed() -> None:
    run("""
        import ipaddress
        from exporter.lean import postpone
        postpone(("ipaddress",))
        import ipaddress as again
        assert again is ipaddress
    """)


def test_threads_that_use_a_postponed_module_at_the_same_time_load_it_once() -> None:
    run("""
        import sys, threading, time
        from exporter.lean import postpone

        def slowly(frame, event, argument):
            # Every thread takes as long for each line, so that all of them are at the same one.
            if event == "line":
                time.sleep(0.01)
            return slowly if frame.f_code.co_filename.endswith("lean.py") else None

        postpone(("ipaddress",))
        import ipaddress
        found = []
        threading.settrace(slowly)
        threads = [threading.Thread(target=lambda: found.append(ipaddress.ip_address)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [sys.modules["ipaddress"].ip_address] * 4, found
    """)


def test_another_module_is_imported_in_its_place_for_a_while() -> None:
    other = ModuleType("calendar_of_ours")
    with instead("calendar_of_ours", other):
        assert __import__("calendar_of_ours") is other
    with pytest.raises(ModuleNotFoundError):
        __import__("calendar_of_ours")


def test_a_module_is_taken_for_missing_for_a_while_and_never_when_it_is_loaded() -> None:
    run("""
        import sys
        from exporter.lean import instead
        with instead("ssl", None):
            import asyncio
            try:
                import ssl
            except ImportError:
                pass
            else:
                raise AssertionError
        assert asyncio.sslproto.ssl is None
        import ssl
        with instead("ssl", None):
            import ssl as again
        assert again is ssl is sys.modules["ssl"]
    """)


def test_it_is_there_again_after_an_error() -> None:
    with pytest.raises(KeyError), instead("wave", None):
        raise KeyError
    assert __import__("wave").__name__ == "wave"


def test_the_binding_of_nvml_can_still_look_for_libraries() -> None:
    run("""
        import sys
        from exporter.providers.nvidia import binding
        pynvml = binding.load()
        assert "ctypes.util" not in sys.modules
        assert pynvml.find_library("c").startswith("libc.")
    """)
