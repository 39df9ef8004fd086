"""What the render child does with one job."""

from __future__ import annotations

import time
from typing import Any

from models import limits
from models.errors import TemplateError, TemplateTooLarge
from models.templates.render import compile_template, render
from models.templates.values import revive
from runtime.render.masks import inverse, swap, swap_all, swap_message
from runtime.render.protocol import Answer, Refused, Rendered, RenderJob


def answer(job: RenderJob) -> Answer:
    """Never raises: MemoryError too becomes an answer, and the caller ends the process after it."""
    try:
        return Answer(rendered=_Rendering(job).run())
    except MemoryError:
        return Answer(refused=Refused("it ran out of memory", limit="memory"))
    except TemplateTooLarge as error:
        return Answer(refused=Refused(str(error), limit="size"))
    except TemplateError as error:
        return Answer(refused=Refused(str(error)))


class _Rendering:
    """One job on its way: `_messages` and `_client` are those whose rendering is the answer."""

    def __init__(self, job: RenderJob) -> None:
        self._job = job
        self._started = time.process_time()
        self._template = compile_template(job.template)
        self._messages = [revive(message) for message in job.messages]
        self._client = job.client

    def run(self) -> Rendered:
        text, audit = self._render(), None
        if self._job.mask:
            text, audit = self._audited(text)
        return Rendered(text, audit, tuple(self._end(text, cut) for cut in self._job.cuts))

    def _audited(self, text: str) -> tuple[str, str | None]:
        bare = self._messages, self._client
        self._messages = [revive(swap_message(message, self._job.mask)) for message in self._job.messages]
        self._client = swap_all(self._job.client, self._job.mask)
        masked = self._render()
        unmask = inverse(self._job.mask)
        if swap(masked, unmask) == swap(text, unmask):
            return masked, None
        self._messages, self._client = bare
        return text, masked

    def _end(self, text: str, cut: int) -> int:
        if time.process_time() - self._started > self._job.cut_s:
            return -1
        try:
            start = self._render(cut, {"add_generation_prompt": False})
        except TemplateError:
            # Many templates refuse a chat that stops here; then nothing is known about where it would end.
            return -1
        # Some templates close a chat that is not to be continued with one more end token.
        closed = start.removesuffix(self._job.trusted.get("eos_token") or "\0")
        return next((len(beginning) for beginning in (start, closed) if text.startswith(beginning)), -1)

    def _render(self, n_messages: int | None = None, more: dict[str, Any] | None = None) -> str:
        variables = {**self._client, **self._job.trusted, **(more or {}), "messages": self._messages[:n_messages]}
        return render(self._template, variables, max_bytes=limits.RENDER_OUTPUT_BYTES)
