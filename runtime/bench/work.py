"""The work a benchmark gives a server: seeded words, so every server reads the same bytes.

A piece of work takes a client, a model name and a seed, and brings back named figures; `FIGURES` says what each one is.
Two servers are compared on text they have not seen before, because each round has a new seed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from runtime.client import Client, ReplyStream
from runtime.errors import RemoteError
from runtime.stream import End, Failed, Reasoning, Text, Usage

WORDS = (
    *("house", "water", "music", "table", "field", "night", "story", "train", "sugar", "glass", "horse", "cloud"),
    *("plant", "light", "north", "beach", "bread", "chair", "clock", "dance", "earth", "floor", "grass", "heart"),
    *("island", "market", "number", "orange", "pocket", "school", "spring", "street"),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """What a figure means to a reader."""

    title: str
    unit: str
    higher_is_better: bool


FIGURES = {
    "decode_tok_s": Figure("decode", "tok/s", True),
    "prefill_tok_s": Figure("prefill", "tok/s", True),
    "first_token_s": Figure("first token", "s", False),
    "gap_p50_s": Figure("gap between tokens, median", "s", False),
    "gap_max_s": Figure("gap between tokens, worst", "s", False),
    "long_first_token_s": Figure("first token of the long prompt", "s", False),
    "wall_s": Figure("all replies complete", "s", False),
    "first_token_max_s": Figure("first token, last of the burst", "s", False),
    "out_tok_s": Figure("all replies together", "tok/s", True),
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it. Words and tokens; a word of the list is about one token."""

    prompt_words: int = 24
    long_words: int = 900
    out_tokens: int = 128
    requests: int = 8
    suffix_words: int = 24


@dataclass(slots=True)
class Reply:
    """One streamed reply with the time of every piece, in seconds since the request was sent."""

    times: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    total_s: float = 0.0

    @property
    def n_tokens(self) -> int:
        return self.usage.n_generated or len(self.times)

    @property
    def first_token_s(self) -> float:
        return self.times[0]

    @property
    def decode_tok_s(self) -> float:
        """Tokens after the first, over the time from the first to the last."""
        return (self.n_tokens - 1) / (self.times[-1] - self.times[0])

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def words(count: int, seed: int) -> str:
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


def ask(
    client: Client, model: str, prompt: str, max_tokens: int, on_piece: Callable[[int], None] = lambda count: None
) -> Reply:
    """Stream one raw completion to its end. Raises RemoteError when it fails or says nothing."""
    reply = Reply()
    start = time.perf_counter()
    stream = client.stream_completion(prompt, model=model, max_tokens=max_tokens, temperature=0, ignore_eos=True)
    for event in stream:
        if isinstance(event, Text | Reasoning):
            reply.times.append(time.perf_counter() - start)
            on_piece(len(reply.times))
        elif isinstance(event, Usage):
            reply.usage = event
    reply.total_s = time.perf_counter() - start
    _check(stream, reply)
    return reply


def decode(client: Client, model: str, seed: int, size: Size) -> Mapping[str, float]:
    """One short prompt, one long reply: how fast tokens follow each other."""
    reply = ask(client, model, words(size.prompt_words, seed), size.out_tokens)
    return {"decode_tok_s": reply.decode_tok_s, "first_token_s": reply.first_token_s}


def prefill(client: Client, model: str, seed: int, size: Size) -> Mapping[str, float]:
    """One long prompt, hardly a reply: how fast a prompt is read."""
    reply = ask(client, model, words(size.long_words, seed), 4)
    n_prompt = reply.usage.n_prompt or size.long_words
    return {"prefill_tok_s": n_prompt / reply.first_token_s, "first_token_s": reply.first_token_s}


def mixed(client: Client, model: str, seed: int, size: Size) -> Mapping[str, float]:
    """A chat is running when a long prompt arrives: how long the chat stands still, and how long the newcomer waits."""
    running = threading.Event()
    chat = _Background(
        lambda: ask(
            client,
            model,
            words(size.prompt_words, seed),
            max(size.out_tokens, 200),
            lambda count: running.set() if count == 8 else None,
        ),
        always=running.set,
    )
    running.wait()
    newcomer = ask(client, model, words(size.long_words, seed + 1_000_000), 4)
    gaps = chat.result().gaps_s
    return {
        "gap_p50_s": median(gaps),
        "gap_max_s": max(gaps),
        "long_first_token_s": newcomer.first_token_s,
    }


def burst(client: Client, model: str, seed: int, size: Size) -> Mapping[str, float]:
    """Requests that share a long beginning, all at once."""
    shared = words(size.long_words, seed)
    start = time.perf_counter()
    askers = [
        _Background(lambda i=i: ask(client, model, _question(shared, seed, i, size), size.out_tokens))  # type: ignore[misc]
        for i in range(size.requests)
    ]
    replies = [asker.result() for asker in askers]
    wall_s = time.perf_counter() - start
    first = sorted(reply.first_token_s for reply in replies)
    return {
        "wall_s": wall_s,
        "first_token_s": median(first),
        "first_token_max_s": first[-1],
        "out_tok_s": sum(reply.n_tokens for reply in replies) / wall_s,
    }


WORKS: dict[str, Callable[[Client, str, int, Size], Mapping[str, float]]] = {
    "decode": decode,
    "prefill": prefill,
    "mixed": mixed,
    "burst": burst,
}


class _Background:
    """Runs `ask` on a thread and hands its result, or its error, to whoever waits."""

    def __init__(self, ask_: Callable[[], Reply], always: Callable[[], None] = lambda: None) -> None:
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(ask_, always), daemon=True)
        self._thread.start()

    def result(self) -> Reply:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._reply is not None
        return self._reply

    def _run(self, ask_: Callable[[], Reply], always: Callable[[], None]) -> None:
        try:
            self._reply = ask_()
        except BaseException as error:
            self._error = error
        finally:
            always()


def _question(shared: str, seed: int, index: int, size: Size) -> str:
    return f"{shared}\n\nQuestion {index}: {words(size.suffix_words, seed * 1000 + index)}\nAnswer:"


def _check(stream: ReplyStream, reply: Reply) -> None:
    terminal = stream.terminal
    if isinstance(terminal, Failed):
        raise RemoteError(terminal.error)
    assert isinstance(terminal, End)
    if len(reply.times) < 2:
        raise ValueError(f"the server sent {len(reply.times)} pieces of text: nothing can be timed from that")
