"""What service and worker say to each other: msgpack frames with a 4-byte little-endian length in front.

A request's life on the wire: `Submit` → `Accepted` (or `Failed`) → `Progress`* → `Delta`* → `ChoiceDone`×n → `Done`.
`Done` and `Failed` are terminal, and exactly one of them is sent for every `Submit`.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from runtime.config import EngineOptions
from runtime.errors import ErrorInfo
from runtime.request import ChatRequest

MAX_FRAME_BYTES = 256 * 1024 * 1024
HEADER = struct.Struct("<I")


class Frame(msgspec.Struct, frozen=True, tag=True):
    """Base of all frames; the tag is the class name."""


# service → worker


class Load(Frame, frozen=True, tag=True):
    """First frame a worker gets."""

    options: EngineOptions


class Submit(Frame, frozen=True, tag=True):
    request: ChatRequest


class Cancel(Frame, frozen=True, tag=True):
    """The client is gone. The worker still answers with one terminal frame."""

    id: str


class Ping(Frame, frozen=True, tag=True):
    """Answered by the engine thread between steps, so a pong proves that steps end."""

    nonce: int


class Stop(Frame, frozen=True, tag=True):
    """Finish nothing, fail what runs with shutting_down, and exit 0."""


# worker → service


class Loading(Frame, frozen=True, tag=True):
    """Weights read so far, 0 to 1."""

    fraction: float


class Ready(Frame, frozen=True, tag=True):
    """The model is loaded. `n_ctx` is what one chat can use; `plan` is one line for people."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    parallel: int
    n_params: int
    size_bytes: int
    description: str
    plan: str
    build: str
    warnings: tuple[str, ...] = ()
    template: str = ""


class LoadFailed(Frame, frozen=True, tag=True):
    error: ErrorInfo


class Accepted(Frame, frozen=True, tag=True):
    """Rendered, tokenized and within the context: HTTP headers may go out. `dropped` counts turns left out."""

    id: str
    n_prompt: int
    dropped: int = 0


class Progress(Frame, frozen=True, tag=True):
    """Prompt tokens computed so far."""

    id: str
    done: int
    total: int


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural logs of the model's probabilities before sampling. `top` is sorted, best first."""

    token: int
    piece: bytes
    logprob: float
    top: tuple[tuple[int, bytes, float], ...] = ()


class Delta(Frame, frozen=True, tag=True):
    """New text of one choice. `n_tokens` tokens became visible with it."""

    id: str
    index: int
    text: str
    n_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()


class ChoiceDone(Frame, frozen=True, tag=True):
    """`reason` is "stop" or "length"; `stop` the stop string met, when there was one."""

    id: str
    index: int
    reason: str
    stop: str | None = None


class Timings(msgspec.Struct, frozen=True):
    """Milliseconds in the worker. `queued` is from submit to first scheduled."""

    queued_ms: float
    prompt_ms: float
    predicted_ms: float
    prompt_n: int
    predicted_n: int
    cached_n: int = 0


class Done(Frame, frozen=True, tag=True):
    """Terminal. Token counts for all choices together."""

    id: str
    n_prompt: int
    n_cached: int
    n_generated: int
    timings: Timings
    cancelled: bool = False


class Failed(Frame, frozen=True, tag=True):
    """Terminal. `emitted` says whether any Delta went out before."""

    id: str
    error: ErrorInfo
    emitted: bool = False


class EngineStats(msgspec.Struct, frozen=True):
    """Counters since load (n_*) and gauges. Bytes for memory, seconds for times."""

    running: int = 0
    waiting: int = 0
    cells_used: int = 0
    cells_total: int = 0
    n_steps: int = 0
    n_preempted: int = 0
    n_prompt_tokens: int = 0
    n_generated_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    longest_step_s: float = 0.0
    rss_bytes: int = 0
    devices: tuple[tuple[str, int, int], ...] = ()


class Pong(Frame, frozen=True, tag=True):
    """`devices` in the stats are (name, free bytes, total bytes)."""

    nonce: int
    stats: EngineStats


ToWorker = Load | Submit | Cancel | Ping | Stop
ToService = Loading | Ready | LoadFailed | Accepted | Progress | Delta | ChoiceDone | Done | Failed | Pong

_ENCODER = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """Length prefix and body."""
    body = _ENCODER.encode(frame)
    return HEADER.pack(len(body)) + body


def decoder(union: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder for one direction: `decoder(ToWorker)` or `decoder(ToService)`."""
    return msgspec.msgpack.Decoder(union)
