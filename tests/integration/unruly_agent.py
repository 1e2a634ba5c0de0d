"""An agent of attribution that misbehaves as GPU_EXPORTER_UNRULY says; run in place of the real one."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from exporter.attribution.frames import Ask, packed, requests
from exporter.attribution.source import NOT_YET
from exporter.framing import encode
from exporter.model import Attribution, Owner, SourceStatus
from exporter.parentage import die_with

OWNERS = (Owner(pid=77, started=5000, name="python3", user="ada"),)


SAYS = {
    True: Attribution(owners=OWNERS, sources=(SourceStatus(source="proc", up=True),)),
    False: Attribution(sources=(SourceStatus(source="proc", up=False, reason=NOT_YET),)),
}
"""By whether it is complete."""


def main() -> NoReturn:
    behaviour, _, trace = os.environ["GPU_EXPORTER_UNRULY"].partition(":")
    answer_end, request_end, parent = map(int, sys.argv[2:5])
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour.startswith("answer, then "):  # what another one does after it has gone
        behaviour = behaviour.removeprefix("answer, then ") if Path(trace).exists() else "answer"
        Path(trace).touch()
    if behaviour == "exit":
        print("Traceback: something is wrong", flush=True)
        sys.exit(3)
    if behaviour == "garbage":
        os.write(answer_end, b"\xff" * 100_000)
    if behaviour == "flood":
        while True:
            print("x" * 1000, flush=True)
    complete = behaviour in ("once", "answer")
    inbox = requests()
    while behaviour in ("once", "answer", "late", "silent"):
        for request in inbox.feed(os.read(request_end, 65536)):
            if isinstance(request, Ask):
                os.write(answer_end, encode(packed(request.token, SAYS[complete])))
                complete = behaviour != "silent"
                behaviour = "hang" if behaviour == "once" else behaviour
    while True:  # neither reads nor answers
        time.sleep(60)


if __name__ == "__main__":
    main()
