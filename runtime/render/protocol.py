"""What a worker and its render child say to each other: one job, one answer, over the child's stdin and stdout.

Frames are msgpack with a 4-byte little-endian length in front. A frame with `ready` comes first, once the child stands
under its limits.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import msgspec

HEADER = struct.Struct("<I")


class RenderJob(msgspec.Struct, frozen=True):
    """One rendering. Text that came from a client is in `messages` and `client`, everything else in `trusted`.

    `mask` maps characters to private-use ones: a second rendering with every client text masked shows which of the
    output came from the client. `cuts` are message counts: for each, where the rendering of only so many messages
    would end. `cut_s` is the processor time after which cuts are left out.
    """

    template: str
    messages: list[dict[str, Any]]
    client: dict[str, Any] = {}
    trusted: dict[str, Any] = {}
    mask: dict[str, str] = {}
    cuts: tuple[int, ...] = ()
    cut_s: float = 0.05


class Rendered(msgspec.Struct, frozen=True):
    """The output. `text` is the masked rendering where unmasking it gives the unmasked one.

    Where it does not, the template looks into the masked characters: then `text` is the unmasked rendering and `audit`
    the masked one. `ends` has, for each cut, the offset in `text` where it ends, or -1 when it is no beginning of it.
    """

    text: str
    audit: str | None = None
    ends: tuple[int, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """No output. `limit` names the limit that was met, "" when the template itself raised `reason`."""

    reason: str
    limit: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the child sends."""

    ready: bool = False
    rendered: Rendered | None = None
    refused: Refused | None = None


_ENCODER = msgspec.msgpack.Encoder()
_JOB = msgspec.msgpack.Decoder(RenderJob)
_ANSWER = msgspec.msgpack.Decoder(Answer)


def write(stream: BinaryIO, frame: RenderJob | Answer) -> None:
    body = _ENCODER.encode(frame)
    stream.write(HEADER.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_job(stream: BinaryIO) -> RenderJob | None:
    """The next job, or None when the worker has closed the pipe."""
    body = _read(stream, max_bytes=2**32)
    return None if body is None else _JOB.decode(body)


def read_answer(stream: BinaryIO, *, max_bytes: int) -> Answer | None:
    """The answer, or None when the child is gone. Raises ValueError on a frame that no sound child sends."""
    body = _read(stream, max_bytes=max_bytes)
    return None if body is None else _ANSWER.decode(body)


def _read(stream: BinaryIO, *, max_bytes: int) -> bytes | None:
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    (size,) = HEADER.unpack(head)
    if size > max_bytes:
        raise ValueError(f"a frame of {size} bytes, {max_bytes} are allowed")
    body = stream.read(size)
    return body if len(body) == size else None
