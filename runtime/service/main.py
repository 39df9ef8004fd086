"""The service as a program: called by `headrace serve`, or started as a child by a program that wants one of its own.

As a child it reads its options as one JSON line on stdin, where no other user can see a key, and ends when stdin does.
With --announce it says its port and process id as one JSON line on stdout once it listens.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import msgspec

from runtime.config import EngineOptions, ServiceOptions
from runtime.errors import HeadraceError
from runtime.service.app import create_app
from runtime.service.doors import CannotServe, check_binding
from runtime.service.listen import listen, port_of
from runtime.service.names import alias
from runtime.service.server import Server, loop_factory
from runtime.service.supervisor import Supervisor

OPTIONS_BYTES = 1024 * 1024

Say = Callable[[str], None]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line on a child's stdin."""

    service: ServiceOptions
    engine: EngineOptions


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    sys.stderr.write(f"headrace: {line}\n")
    sys.stderr.flush()


def serve(service: ServiceOptions, engine: EngineOptions, *, say: Say = say) -> int:
    """Serve in this process until a signal. Returns the exit code; problems are one sentence on stderr."""
    program = _Program(service, engine, say)
    return _run(program, ends_with_model=True)


def main() -> int:
    """The child program. Its model may fail to load: /health says so, and whoever started it decides."""
    try:
        options = _options(_first_line(sys.stdin.fileno()))
    except CannotServe as error:
        complain(error.message)
        return 2
    program = _Program(options.service, options.engine, lambda _: None)
    program.announce = "--announce" in sys.argv[1:]
    program.stdin = sys.stdin.fileno()
    return _run(program, ends_with_model=False)


class _Program:
    """One run of the service. Belongs to the event loop's thread."""

    def __init__(self, service: ServiceOptions, engine: EngineOptions, say: Say) -> None:
        self.announce = False
        self.stdin: int | None = None
        self._service = service
        self._engine = engine
        self._say = say
        self._failed = False

    async def run(self, *, ends_with_model: bool) -> int:
        check_binding(self._service)
        listeners = listen(self._service.host, self._service.port)
        options = replace(self._service, port=port_of(listeners[0]))
        backend = Supervisor(self._engine, options)
        server = Server(create_app(options, backend), options, backend, lambda: self._on_listening(options))
        await backend.start()
        telling = asyncio.create_task(self._tell(backend, server, ends_with_model))
        if self.stdin is not None:
            _when_ended(self.stdin, asyncio.get_running_loop(), server.stop)
        try:
            await server.serve(sockets=listeners)
        finally:
            telling.cancel()
            await backend.close()
        return 1 if self._failed else 0

    def _on_listening(self, options: ServiceOptions) -> None:
        if self.announce:
            say(json.dumps({"port": options.port, "pid": os.getpid()}))
        host = f"[{options.host}]" if ":" in options.host else options.host
        self._say(f"Loading {alias(options)}. OpenAI clients connect to http://{host}:{options.port}/v1")

    async def _tell(self, backend: Supervisor, server: Server, ends_with_model: bool) -> None:
        """What was decided for the user, once it is known; or why there is no model."""
        state = await backend.settled()
        if state == "ready" and backend.facts is not None:
            for line in (backend.facts.plan, *backend.facts.warnings, "Ready. Ctrl-C stops it."):
                self._say(line)
        elif state == "disabled" and backend.problem is not None:
            complain(backend.problem.message)
            if ends_with_model:
                self._failed = True
                server.stop()


def _run(program: _Program, *, ends_with_model: bool) -> int:
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(program.run(ends_with_model=ends_with_model))
    except HeadraceError as error:
        complain(error.message)
        return 1


def _options(line: bytes) -> Options:
    try:
        return msgspec.json.decode(line, type=Options)
    except msgspec.MsgspecError as error:
        raise CannotServe(
            f"the first line of stdin must be a JSON object with the options of service and engine: {error}"
        ) from None


def _first_line(stdin: int) -> bytes:
    # The file itself, not Python's buffer: a thread that waits in the buffer at exit would hold its lock.
    line = b""
    while b"\n" not in line and len(line) < OPTIONS_BYTES and (data := os.read(stdin, 65536)):
        line += data
    return line.partition(b"\n")[0]


def _when_ended(stdin: int, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    def wait() -> None:
        while os.read(stdin, 65536):
            pass
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
