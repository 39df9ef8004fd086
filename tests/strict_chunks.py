"""A reader of OpenAI streams that is stricter than any client: the intersection of what all of them need.

`chat` and `text` return the choices they read, or raise `Broken` naming the rule (W3 to W9) that the bytes break.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

REASONS = ("stop", "length")
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")


class Broken(AssertionError):
    """The stream breaks a rule of the wire."""


@dataclass
class Read:
    """What a stream said. `error` is set instead of a complete end."""

    texts: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[Any]] = field(default_factory=dict)
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    n_chunks: int = 0
    n_comments: int = 0


def events(raw: bytes) -> tuple[list[str], int]:
    """The data of each event, and how many comments there were (W2, W3)."""
    need(raw.endswith(b"\n\n"), "W3: the stream ends inside an event")
    found, comments = [], 0
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):
            need(block == ": keep-alive", f"W2: comment {block!r}")
            comments += 1
            continue
        need("\n" not in block and "\r" not in block, f"W3: an event of several lines: {block!r}")
        need(block.startswith("data: "), f"W3: not `data: `: {block!r}")
        found.append(block.removeprefix("data: "))
    return found, comments


def chat(raw: bytes, *, n: int = 1, usage: bool = False) -> Read:
    return _read(raw, _ChatRules(), n, usage)


def text(raw: bytes, *, n: int = 1, usage: bool = False) -> Read:
    return _read(raw, _TextRules(), n, usage)


def need(holds: Any, rule: str) -> None:
    if not holds:
        raise Broken(rule)


class _ChatRules:
    object = "chat.completion.chunk"

    def __init__(self) -> None:
        self.greeted: set[int] = set()

    def text_of(self, choice: dict[str, Any]) -> str:
        delta = choice.get("delta")
        need(isinstance(delta, dict), "W6: a choice without delta")
        index = choice["index"]
        if index not in self.greeted:
            need(delta == {"role": "assistant", "content": None}, f"W4: first delta is {delta}")
            self.greeted.add(index)
            return ""
        need("role" not in delta, "W4: role twice")
        kinds = [kind for kind in ("content", "reasoning_content", "tool_calls") if kind in delta]
        need(len(kinds) <= 1, f"W5: several kinds in one delta: {kinds}")
        if not kinds:
            return ""
        need(isinstance(delta["content"], str) and delta["content"] != "", f"W5: content {delta['content']!r}")
        return str(delta["content"])

    def entries_of(self, logprobs: dict[str, Any]) -> list[Any]:
        return list(logprobs["content"])


class _TextRules:
    object = "text_completion"

    def text_of(self, choice: dict[str, Any]) -> str:
        need(isinstance(choice.get("text"), str), "W6: text must be a string")
        return str(choice["text"])

    def entries_of(self, logprobs: dict[str, Any]) -> list[Any]:
        return list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["text_offset"], strict=True))


def _read(raw: bytes, rules: _ChatRules | _TextRules, n: int, usage: bool) -> Read:
    datas, comments = events(raw)
    read = Read(n_comments=comments)
    last = datas.pop()
    if last == "[DONE]":
        chunks = [_json(data) for data in datas]
    else:
        end = _json(last)
        need(set(end) == {"error"}, f"W8: the stream ends with {last[:80]!r}")
        error = end["error"]
        need(isinstance(error.get("message"), str) and error["message"], "W11: an error without a message")
        need({"type", "param", "code"} <= set(error), "W11: an error without type, param or code")
        read.error = error
        chunks = [_json(data) for data in datas]
    if chunks and not chunks[-1].get("choices") and "error" not in chunks[-1]:
        _read_usage(chunks.pop(), read, usage)
    for chunk in chunks:
        _read_chunk(chunk, rules, read, n)
    shared = [(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks]
    need(len(set(shared)) <= 1, "W6: id, created or model changes")
    if read.error is None:
        need(set(read.reasons) == set(range(n)), f"W8: finished are {sorted(read.reasons)} of {n} choices")
        need((read.usage is not None) == usage, "W9: usage must come if asked for, and only then")
    else:
        need(read.usage is None, "W8: usage makes a broken reply look complete")
    read.n_chunks = len(chunks)
    return read


def _json(data: str) -> dict[str, Any]:
    value = json.loads(data)
    need(isinstance(value, dict), f"W3: not an object: {data[:80]!r}")
    return dict(value)


def _read_usage(chunk: dict[str, Any], read: Read, asked: bool) -> None:
    need(chunk.get("choices") == [], "W9: the usage chunk has an empty array of choices")
    need(asked, "W9: a chunk without choices that nobody asked for")
    read.usage, read.timings = chunk["usage"], chunk["timings"]
    for name in USAGE:
        need(type(chunk["usage"].get(name)) is int, f"W9: usage.{name}")
    need(type(chunk["usage"]["prompt_tokens_details"]["cached_tokens"]) is int, "W9: cached_tokens")
    need(type(chunk["usage"]["completion_tokens_details"]["reasoning_tokens"]) is int, "W9: reasoning_tokens")


def _read_chunk(chunk: dict[str, Any], rules: _ChatRules | _TextRules, read: Read, n: int) -> None:
    need(chunk.get("object") == rules.object, f"W6: object {chunk.get('object')}")
    need(isinstance(chunk.get("id"), str) and chunk["id"], "W6: id")
    need(type(chunk.get("created")) is int, "W6: created")
    need(isinstance(chunk.get("model"), str), "W6: model")
    need("usage" not in chunk, "W9: usage on a chunk with choices")
    need(isinstance(chunk.get("choices"), list) and len(chunk["choices"]) == 1, "W6: one choice in a chunk")
    choice = chunk["choices"][0]
    index = choice.get("index")
    need(type(index) is int and 0 <= index < n, f"W6: index {index}")
    need("finish_reason" in choice, "W6: no finish_reason")
    need(index not in read.reasons, "W8: something after the finish of its choice")
    said = rules.text_of(choice)
    if choice.get("logprobs"):
        read.logprobs.setdefault(index, []).extend(rules.entries_of(choice["logprobs"]))
    reason = choice["finish_reason"]
    if reason is not None:
        need(reason in REASONS, f"W8: finish_reason {reason!r}")
        need(not said, "W5: text together with a finish")
        need(not choice.get("logprobs"), "W5: logprobs together with a finish")
        need(choice.get("delta", {}) == {}, "W8: the last delta is not empty")
        read.reasons[index] = reason
    read.texts[index] = read.texts.get(index, "") + said
