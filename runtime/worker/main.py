"""The worker process: one model, frames in, frames out, and a quick end when the service is gone.

The main thread reads frames and nothing else, so that a stop or the end of the channel is noticed at any time, also
while the model loads. Everything else is `runtime/worker/worker.py`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from runtime import platform
from runtime.config import EngineOptions
from runtime.errors import ErrorInfo, HeadraceError, ModelLoadFailed
from runtime.frames import Cancel, Frame, Load, LoadFailed, Ping, Ready, Stop, Submit, ToWorker
from runtime.handover import adopt
from runtime.request import ChatRequest
from runtime.transport import BadFrame, Transport

# After llama_decode the engine thread wants the interpreter back at once; by default others may keep it for 5 ms.
SWITCH_INTERVAL_S = 0.0005
# After this much time for an orderly end the process ends anyway. Once the channel is gone nobody waits for its words.
STOP_S = 2.5
ORPHANED_S = 0.5

EX_OK, EX_USAGE, EX_SOFTWARE = 0, 64, 70


class Engine(Protocol):
    """What `runtime.worker.worker.Worker` offers, or a named fake."""

    def load(self) -> Ready: ...
    def submit(self, request: ChatRequest) -> None: ...
    def cancel(self, id: str) -> None: ...
    def ping(self, nonce: int) -> None: ...
    def close(self) -> None: ...


MakeEngine = Callable[[EngineOptions, Callable[[Frame], None]], Engine]


class Serving:
    """One worker's life on one channel. `exit` must not return; tests have one that raises."""

    def __init__(self, transport: Transport, make: MakeEngine, exit: Callable[[int], None] = os._exit) -> None:
        self._transport = transport
        self._make = make
        self._exit = exit
        self._engine: Engine | None = None
        self._loading: threading.Thread | None = None

    def run(self) -> int:
        """Until a Stop or the end of the channel. Returns the exit code."""
        try:
            for frame in self._transport:
                if isinstance(frame, Stop):
                    return self._end(STOP_S)
                self._take(frame)
        except BadFrame as error:
            sys.stderr.write(f"the service sent {error.message}\n")
            return EX_USAGE
        return self._end(ORPHANED_S)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Submit(request):
                self._loaded().submit(request)
            case Cancel(id):
                self._loaded().cancel(id)
            case Ping(nonce):
                self._loaded().ping(nonce)
            case Load(options):
                if self._loading is not None:
                    raise BadFrame("a second Load frame")
                self._loading = threading.Thread(target=self._load, args=(options,), name="load", daemon=True)
                self._loading.start()

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise BadFrame("a frame that only a loaded model can take")
        return self._engine

    def _load(self, options: EngineOptions) -> None:
        """On its own thread. A model that cannot be loaded is told by a frame; the service then closes the channel."""
        try:
            engine = self._make(options, self._transport.send)
            ready = engine.load()
        except HeadraceError as error:
            self._transport.send(LoadFailed(error.info()))
        except Exception as error:
            traceback.print_exc()
            self._transport.send(LoadFailed(_unexpected(error)))
        else:
            self._engine = engine
            self._transport.send(ready)

    def _end(self, seconds: float) -> int:
        """Close what is loaded. A load cannot be interrupted, so the process ends under it."""
        timer = threading.Timer(seconds, self._exit, (EX_OK,))
        timer.daemon = True
        timer.start()
        if self._engine is not None:
            self._engine.close()
        self._transport.flush(seconds)
        timer.cancel()
        return EX_OK


def _unexpected(error: Exception) -> ErrorInfo:
    return ModelLoadFailed(f"loading failed unexpectedly: {type(error).__name__}: {error}").info()


def _thread_died(arguments: threading.ExceptHookArgs) -> None:
    """A worker without one of its threads would go on without answering; the service starts another at once."""
    error: BaseException | None = arguments.exc_value
    trace: TracebackType | None = arguments.exc_traceback
    name = arguments.thread.name if arguments.thread else "?"
    traceback.print_exception(arguments.exc_type, error, trace)
    sys.stderr.write(f"error: thread {name} ended by {arguments.exc_type.__name__}: {error}\n")
    sys.stderr.flush()
    os._exit(EX_SOFTWARE)


def _make_engine(options: EngineOptions, send: Callable[[Frame], None]) -> Engine:
    # Imported late: it takes a while and loads libllama, and the process must be in its place before that.
    from runtime.worker.worker import Worker

    return Worker(options, send)


def main(arguments: list[str] | None = None) -> None:
    """The program: CHANNEL PARENT_PID, as the service's spawner appends them."""
    channel, parent = sys.argv[1:] if arguments is None else arguments
    try:
        platform.confine_worker(int(parent))
    except platform.ParentGone:
        os._exit(EX_OK)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.excepthook = _thread_died
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    code = Serving(Transport(adopt(channel), ToWorker), _make_engine).run()
    sys.stderr.flush()
    # Without the interpreter's own end: threads inside libllama would run on while it is taken apart.
    os._exit(code)


if __name__ == "__main__":
    main()
