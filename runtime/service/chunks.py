"""Replies in OpenAI's two shapes, chat and text: stream chunks as bytes, whole replies as dicts.

One chunk carries one kind of thing for one choice. What all chunks of a reply share is encoded once; a chunk of text
costs one encoding of that text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from runtime.frames import TokenLogprob
from runtime.service import logprobs
from runtime.service.tally import Tally

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
_END = b"}\n\n"
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Origin:
    """What every chunk of a reply repeats."""

    id: str
    created: int
    model: str
    fingerprint: str


@dataclass(slots=True)
class Choice:
    """A whole choice as it is collected, by the sink that owns it. `held` are logprobs whose text has not come."""

    index: int
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    held: list[TokenLogprob] = field(default_factory=list)
    reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Shape:
    """What both shapes share. `with_logprobs` says whether the client asked for them."""

    chunk_object: ClassVar[str]
    whole_object: ClassVar[str]

    def __init__(self, origin: Origin, *, with_logprobs: bool) -> None:
        self._origin = origin
        self._with_logprobs = with_logprobs
        # Everything up to the choices, its closing brace left out.
        self._head = b"data: " + _encode(self._about(self.chunk_object))[:-1] + b',"choices":'

    def first(self, index: int) -> bytes:
        """Sent before anything of a choice; empty where the shape has no such chunk."""
        raise NotImplementedError

    def text(self, index: int, text: str, entries: Sequence[TokenLogprob]) -> bytes:
        raise NotImplementedError

    def finish(self, index: int, reason: str) -> bytes:
        raise NotImplementedError

    def usage(self, tally: Tally) -> bytes:
        return self._head + b"[]," + _encode(tally.said())[1:] + b"\n\n"

    def whole(self, choices: Sequence[Choice], tally: Tally) -> dict[str, Any]:
        return {
            **self._about(self.whole_object),
            "choices": [self._whole_choice(choice) for choice in choices],
            **tally.said(),
        }

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        raise NotImplementedError

    def _about(self, kind: str) -> dict[str, Any]:
        origin = self._origin
        return {
            "id": origin.id,
            "object": kind,
            "created": origin.created,
            "model": origin.model,
            "system_fingerprint": origin.fingerprint,
        }

    def _chunk(self, choice: Mapping[str, Any]) -> bytes:
        return self._head + b"[" + _encode(choice) + b"]" + _END


class ChatShape(Shape):
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def first(self, index: int) -> bytes:
        return self._chunk({"index": index, "delta": {"role": "assistant", "content": None}, "finish_reason": None})

    def text(self, index: int, text: str, entries: Sequence[TokenLogprob]) -> bytes:
        if self._with_logprobs:
            delta = {"content": text} if text else {}
            said = logprobs.chat(entries)
            return self._chunk({"index": index, "delta": delta, "logprobs": said, "finish_reason": None})
        return b'%b[{"index":%d,"delta":{"content":%b},"finish_reason":null}]}\n\n' % (self._head, index, _encode(text))

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk({"index": index, "delta": {}, "finish_reason": reason})

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": logprobs.chat(choice.logprobs) if self._with_logprobs else None,
            "finish_reason": choice.reason,
        }


class TextShape(Shape):
    chunk_object = "text_completion"
    whole_object = "text_completion"

    def __init__(self, origin: Origin, *, with_logprobs: bool) -> None:
        super().__init__(origin, with_logprobs=with_logprobs)
        self._offsets: dict[int, int] = {}

    def first(self, index: int) -> bytes:
        return b""

    def text(self, index: int, text: str, entries: Sequence[TokenLogprob]) -> bytes:
        if self._with_logprobs:
            said, self._offsets[index] = logprobs.text(entries, self._offsets.get(index, 0))
            return self._chunk({"index": index, "text": text, "logprobs": said, "finish_reason": None})
        return b'%b[{"index":%d,"text":%b,"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._head,
            index,
            _encode(text),
        )

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk({"index": index, "text": "", "logprobs": None, "finish_reason": reason})

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": choice.text,
            "logprobs": logprobs.text(choice.logprobs, 0)[0] if self._with_logprobs else None,
            "finish_reason": choice.reason,
        }
