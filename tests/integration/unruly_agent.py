"""An agent of attribution that misbehaves as GPU_EXPORTER_UNRULY says; run in place of the real one."""

import os
import signal
import sys
import time
from typing import NoReturn

from exporter.attribution.frames import Answer, Ask, requests
from exporter.framing import encode
from exporter.model import SourceStatus
from exporter.parentage import die_with


def main() -> NoReturn:
    behaviour = os.environ["GPU_EXPORTER_UNRULY"]
    answer_end, request_end, parent = map(int, sys.argv[2:5])
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "exit":
        print("Traceback: something is wrong", flush=True)
        sys.exit(3)
    if behaviour == "garbage":
        os.write(answer_end, b"\xff" * 100_000)
    if behaviour == "flood":
        while True:
            print("x" * 1000, flush=True)
    inbox = requests()
    while behaviour == "once":
        for request in inbox.feed(os.read(request_end, 65536)):
            if isinstance(request, Ask):
                status = SourceStatus(source="proc", up=True)
                os.write(answer_end, encode(Answer(token=request.token, sources=(status,))))
                behaviour = "hang"
    while True:  # neither reads nor answers
        time.sleep(60)


if __name__ == "__main__":
    main()
