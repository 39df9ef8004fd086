"""Values a template sees that plain JSON types cannot express."""

from __future__ import annotations

from typing import Any


class Arguments(dict[str, Any]):
    """Arguments of a tool call: an object to templates that walk it, the client's own JSON text to those that print it.

    Templates of both kinds exist, and a template that concatenates would refuse a plain dict.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str, value: dict[str, Any]) -> None:
        super().__init__(value)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


def revive(message: dict[str, Any]) -> dict[str, Any]:
    """`message` with every `{"text", "value"}` pair of call arguments made into what a template can use."""
    if not message.get("tool_calls"):
        return message
    return message | {"tool_calls": [_revive_call(call) for call in message["tool_calls"]]}


def _revive_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    text, value = function["arguments"]["text"], function["arguments"]["value"]
    arguments = Arguments(text, value) if isinstance(value, dict) else text
    return call | {"function": function | {"arguments": arguments}}
