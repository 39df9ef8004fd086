"""The service over a `FakeBackend` as a program of its own, for tests that send signals.

fake_service_program.py [STATE]: announces its port like the real child. Chats stop after two words until it ends;
"stuck" is a backend that never closes its replies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace

from fakes import FakeBackend, Script
from service_bench import OPTIONS

from runtime.service.app import create_app
from runtime.service.listen import listen, port_of
from runtime.service.server import Server, loop_factory


class Stuck(FakeBackend):
    """Planted fault: its close takes for ever."""

    async def close(self) -> None:
        await asyncio.Event().wait()


async def main(mode: str) -> None:
    backend = (Stuck if mode == "stuck" else FakeBackend)(Script(hold_at=2))
    listeners = listen("127.0.0.1", 0)
    options = replace(OPTIONS, port=port_of(listeners[0]))
    await Server(create_app(options, backend), options, backend, lambda: announce(options.port)).serve(listeners)


def announce(port: int) -> None:
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(sys.argv[1] if len(sys.argv) > 1 else "serve"))
