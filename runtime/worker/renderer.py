"""The worker's handle on its render child: started when first needed, killed when over its limits, started again.

One thread calls `render`. `close` may come from another one, once.
"""

from __future__ import annotations

import math
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from models import limits
from models.templates.builtin import NAMES
from runtime import commands
from runtime.errors import TemplateFailed
from runtime.render import cage, protocol
from runtime.render.protocol import Answer, Refused, Rendered, RenderJob


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Seconds on the wall clock and bytes. The child's processor time limit, where there is one, comes first."""

    render_s: float = limits.RENDER_S * 4 if cage.has_processor_timer() else limits.RENDER_S
    start_s: float = 30.0
    answer_bytes: int = limits.RENDER_OUTPUT_BYTES * 2 + limits.MIB


class TemplateRaised(TemplateFailed):
    """The template itself refused the messages: another shape of the same chat may please it."""


class Renderer:
    """Owns the render child and the thread that watches its clock."""

    def __init__(self, *, limits: RenderLimits | None = None, argv: Sequence[str] | None = None) -> None:
        self._limits = limits or RenderLimits()
        self._argv = list(argv or commands.argv("render"))
        self._child: subprocess.Popen[bytes] | None = None
        self._watch: _Watch | None = None
        self.n_started = 0

    def start(self) -> None:
        """Start the child without waiting for it, so that the first chat need not."""
        if self._child is not None and self._child.poll() is None:
            return
        self._drop()
        self._child = subprocess.Popen(
            self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._watch = self._watch or _Watch()
        self.n_started += 1
        self._ready = False

    def render(self, job: RenderJob) -> Rendered:
        """Raises TemplateRaised with the template's words, TemplateFailed when a limit was met."""
        size = len(job.template.encode(errors="surrogatepass"))
        if size > limits.TEMPLATE_BYTES:
            raise TemplateFailed(_advice(f"has {size} bytes, {limits.TEMPLATE_BYTES} are allowed"))
        self.start()
        if not self._ready:
            answer = self._exchange(lambda child: None, self._limits.start_s)
            if answer is None or not answer.ready:
                raise self._lost("the process that renders chat templates did not start", self._limits.start_s)
            self._ready = True
        answer = self._exchange(lambda child: protocol.write(cast(BinaryIO, child.stdin), job), self._limits.render_s)
        if answer is None:
            raise self._lost("could not be rendered", self._limits.render_s)
        if answer.rendered is not None:
            return answer.rendered
        refused = answer.refused or Refused("it gave no answer")
        if refused.limit == "memory":
            self._drop()  # it ends itself: what is left of its memory is of no use
        raise _refusal(refused)

    def close(self) -> None:
        """End the child. May be called twice."""
        self._drop()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _exchange(self, send: Callable[[subprocess.Popen[bytes]], None], seconds: float) -> Answer | None:
        child, watch = self._child, self._watch
        if child is None or watch is None:
            return None
        watch.arm(child, seconds)
        try:
            send(child)
            return protocol.read_answer(cast(BinaryIO, child.stdout), max_bytes=self._limits.answer_bytes)
        except (OSError, ValueError):
            return None
        finally:
            watch.disarm()

    def _lost(self, what: str, seconds: float) -> TemplateFailed:
        child = self._child
        timed_out = self._watch is not None and self._watch.fired
        self._drop()
        return TemplateFailed(_advice(f"{what}: {_cause(child, timed_out, seconds)}"))

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            try:
                cast(BinaryIO, pipe).close()
            except OSError:
                continue


class _Watch:
    """Kills a child at its deadline. One thread, woken only for a deadline that comes before it would wake anyway: so
    arming and disarming a thousand times a second costs no switch of threads.
    """

    def __init__(self) -> None:
        self.fired = False
        self._child: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0
        self._wakes_at = math.inf
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="render-watch", daemon=True)
        self._thread.start()

    def arm(self, child: subprocess.Popen[bytes], seconds: float) -> None:
        with self._changed:
            self.fired, self._child, self._deadline = False, child, time.monotonic() + seconds
            if self._deadline < self._wakes_at:
                self._changed.notify()

    def disarm(self) -> None:
        with self._changed:
            self._child = None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                if self._child is None:
                    self._wakes_at = math.inf
                    self._changed.wait()
                elif (left := self._deadline - time.monotonic()) > 0:
                    self._wakes_at = self._deadline
                    self._changed.wait(left)
                else:
                    self.fired = True
                    self._child.kill()
                    self._child = None


def _refusal(refused: Refused) -> TemplateFailed:
    if refused.limit == "memory":
        return TemplateFailed(_advice(f"needs more than {limits.RENDER_MEMORY_BYTES // limits.MIB} MiB of memory"))
    if refused.limit:
        return TemplateFailed(_advice(f"cannot be used: {refused.reason}"))
    return TemplateRaised(_advice(f"refused these messages: {refused.reason.rstrip('.')}"))


def _cause(child: subprocess.Popen[bytes] | None, timed_out: bool, seconds: float) -> str:
    if timed_out:
        return f"it took more than {seconds:g} s"
    code = None if child is None else child.returncode
    if code is not None and -code == getattr(signal, "SIGPROF", None):
        return f"it took more than {limits.RENDER_S:g} s of processor time"
    return f"its process ended with {code}"


def _advice(what: str) -> str:
    return f"the chat template {what}. Serve with a built-in template to go on: --template {'|'.join(NAMES)}"
