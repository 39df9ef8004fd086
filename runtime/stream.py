"""The events of one streamed reply, and how they are read from the bytes of an OpenAI-style SSE body.

A reply is `Text` and `Reasoning` in any number, at most one `Usage`, then exactly one terminal: `End` or `Failed`.
A body that stops without `[DONE]` or an error is a failure, however complete its text looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from runtime.errors import ErrorInfo

MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server counted and timed. None where it did not say. Times are milliseconds in the engine."""

    n_prompt: int | None = None
    n_cached: int | None = None
    n_generated: int | None = None
    prompt_ms: float | None = None
    predicted_ms: float | None = None
    prompt_per_second: float | None = None
    predicted_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The reply is complete: `reason` is the server's finish_reason, or "cancelled" when this side stopped it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The reply is not complete, whatever text came before."""

    error: ErrorInfo


Event = Text | Reasoning | Usage | End | Failed
Terminal = End | Failed


class ReplyDecoder:
    """Body bytes in, events out. After the terminal event it says nothing more."""

    def __init__(self) -> None:
        self._rest = b""
        self._reason: str | None = None
        self._usage: dict[str, Any] = {}
        self.ended = False

    def feed(self, data: bytes) -> list[Event]:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if self.ended:
                break
            if line.startswith(b"data:"):
                events += self._message(line[5:].strip())
        if len(self._rest) > MAX_LINE_BYTES and not self.ended:
            events += self._fail("bad_stream", f"the server sent a line longer than {MAX_LINE_BYTES} bytes")
        return events

    def eof(self) -> list[Event]:
        """The connection is at its end."""
        if self.ended:
            return []
        return self._fail(
            "stream_cut_short",
            "the server closed the connection before the reply was complete. Try again",
        )

    def fail(self, error: ErrorInfo) -> list[Event]:
        """The connection broke."""
        if self.ended:
            return []
        self.ended = True
        return [Failed(error)]

    def _message(self, data: bytes) -> list[Event]:
        if data == b"[DONE]":
            return self._done()
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError:
            return self._fail("bad_stream", f"the server sent something that is not JSON: {data[:200]!r}")
        if not isinstance(chunk, dict):
            return self._fail("bad_stream", f"the server sent a chunk that is not an object: {data[:200]!r}")
        if chunk.get("error"):
            return self.fail(error_from(chunk, 500))
        self._note_usage(chunk)
        choices = chunk.get("choices") or ()
        return self._choice(choices[0]) if choices else []

    def _choice(self, choice: Mapping[str, Any]) -> list[Event]:
        delta = choice.get("delta") or choice
        events: list[Event] = []
        if reasoning := delta.get("reasoning_content"):
            events.append(Reasoning(reasoning))
        if text := delta.get("content") or delta.get("text"):
            events.append(Text(text))
        self._reason = choice.get("finish_reason") or self._reason
        return events

    def _note_usage(self, chunk: Mapping[str, Any]) -> None:
        if usage := chunk.get("usage"):
            self._usage["n_prompt"] = usage.get("prompt_tokens")
            self._usage["n_generated"] = usage.get("completion_tokens")
            self._usage["n_cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if timings := chunk.get("timings"):
            names = ("prompt_ms", "predicted_ms", "prompt_per_second", "predicted_per_second")
            self._usage.update({name: timings[name] for name in names if name in timings})
            self._usage.setdefault("n_cached", timings.get("cache_n"))
            self._usage.setdefault("n_generated", timings.get("predicted_n"))

    def _done(self) -> list[Event]:
        self.ended = True
        events: list[Event] = [Usage(**self._usage)] if self._usage else []
        return [*events, End(self._reason or "unknown")]

    def _fail(self, code: str, message: str) -> list[Event]:
        return self.fail(ErrorInfo(code, message, 502, "stream_error"))


def error_from(body: Any, status: int) -> ErrorInfo:
    """The error a server reported, in whichever of the usual shapes it used."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return ErrorInfo("server_error", str(error or f"the server answered with status {status}"), status)
    message = error.get("message") or error.get("detail") or f"the server answered with status {status}"
    code = error.get("code")
    known = {"message", "type", "param", "code"}
    numbers = {k: v for k, v in error.items() if k not in known and isinstance(v, int) and not isinstance(v, bool)}
    return ErrorInfo(
        str(code if code is not None else "server_error"),
        str(message),
        status,
        str(error.get("type") or "api_error"),
        error.get("param") if isinstance(error.get("param"), str) else None,
        numbers,
    )
