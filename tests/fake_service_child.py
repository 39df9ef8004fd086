"""A child program that behaves like the service child, or misbehaves in one named way.

fake_service_child.py [MODE]: reads its options as JSON from the first line of stdin, announces a port, serves the fake
OpenAI wire, and ends when stdin closes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from fake_openai_server import FakeOpenAiServer

MODES = ("serve", "die", "mute", "garbage", "die_while_loading", "stubborn")


def main(mode: str) -> None:
    assert mode in MODES
    options: dict[str, Any] = json.loads(sys.stdin.readline())
    if mode == "die":
        sys.stderr.write("ggml abort: planted\n")
        sys.exit(3)
    if mode == "mute":
        sys.stdin.read()
        return
    if mode == "garbage":
        sys.stdout.write("hello?\n")
        sys.stdout.flush()
        sys.stdin.read()
        return
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _serve(mode, options)


def _serve(mode: str, options: dict[str, Any]) -> None:
    loading = [0.25, 0.5] if mode != "die_while_loading" else [0.25] * 10_000
    with FakeOpenAiServer(api_key=options["service"]["api_key"], loading=loading) as server:
        sys.stdout.write(json.dumps({"port": server.port, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        if mode == "die_while_loading":
            sys.stderr.write("out of memory: planted\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.read()
        if mode == "stubborn":
            threading.Event().wait()


if __name__ == "__main__":
    named = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    main(named[0] if named else "serve")
