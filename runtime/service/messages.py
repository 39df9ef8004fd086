"""Chat messages as clients send them, made into `runtime.request.Message`.

Lenient about shape (content may be null, missing, text or parts on every role), strict about what would be lost: an
image is an error, not an empty string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from models import limits
from runtime.errors import InvalidRequest, UnsupportedFeature
from runtime.request import Message

ROLE_BYTES = 64
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
THOUGHT_PARTS = ("reasoning", "thinking")


def messages_from(raw: Any) -> tuple[Message, ...]:
    """Raises InvalidRequest naming the message and field, UnsupportedFeature for what is not text."""
    if not isinstance(raw, list):
        raise InvalidRequest("messages must be an array of objects with role and content", param="messages")
    if not raw:
        raise InvalidRequest("messages is empty; send at least one", param="messages")
    if len(raw) > limits.MESSAGES:
        raise InvalidRequest(
            f"messages has {len(raw)} entries, {limits.MESSAGES} are allowed; leave out the oldest", param="messages"
        )
    messages = tuple(_message(entry, f"messages.{at}") for at, entry in enumerate(raw))
    check_text((text for message in messages for text in _texts(message)), "messages")
    return messages


def check_text(texts: Any, param: str) -> None:
    """Raises InvalidRequest when `texts` hold more than one request may."""
    n_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if n_bytes > limits.TEXT_BYTES:
        raise InvalidRequest(
            f"{param} holds {n_bytes} bytes of text, {limits.TEXT_BYTES} are allowed; send less", param=param
        )


def _message(entry: Any, where: str) -> Message:
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{where} must be an object with role and content", param=where)
    role = entry.get("role")
    # Which roles a template knows is for the worker to say; developer, tool and others arrive there as they are.
    if not isinstance(role, str) or not 0 < len(role.encode("utf-8", "replace")) <= ROLE_BYTES:
        raise InvalidRequest(f"{where}.role must be a role such as system, user or assistant", param=f"{where}.role")
    content, thought = _content(entry.get("content"), f"{where}.content")
    said = entry.get("reasoning_content") or entry.get("reasoning")
    call_id = entry.get("tool_call_id")
    return Message(
        role,
        content,
        name=entry["name"] if isinstance(entry.get("name"), str) and entry["name"] else None,
        reasoning=said if isinstance(said, str) and said else thought or None,
        tool_calls=_tool_calls(entry),
        tool_call_id=str(call_id) if isinstance(call_id, str | int) and call_id != "" else None,
    )


def _content(content: Any, where: str) -> tuple[str, str]:
    """Text and thoughts of one message."""
    if content is None:
        return "", ""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise InvalidRequest(f"{where} must be a text, an array of parts, or null", param=where)
    texts: list[str] = []
    thoughts: list[str] = []
    for at, part in enumerate(content):
        is_thought, text = _part(part, f"{where}.{at}")
        (thoughts if is_thought else texts).append(text)
    # One line each, as llama-server joins them.
    return "\n".join(text for text in texts if text), "\n".join(text for text in thoughts if text)


def _part(part: Any, where: str) -> tuple[bool, str]:
    if isinstance(part, str):
        return False, part
    if not isinstance(part, dict):
        raise InvalidRequest(f"{where} must be an object with type and text", param=where)
    kind = part.get("type", "text")
    if kind in TEXT_PARTS or kind in THOUGHT_PARTS:
        text = part.get("text", part.get(kind))
        if text is None or isinstance(text, str):
            return kind in THOUGHT_PARTS, text or ""
        raise InvalidRequest(f"{where}.text must be a text", param=f"{where}.text")
    if isinstance(kind, str) and kind and len(kind) <= 64:
        raise UnsupportedFeature(
            f"{where} is of type {kind}: the model has no projector for images, audio or files, it reads text only. "
            f"Leave this part out, or send what it says as text",
            param=where,
        )
    raise InvalidRequest(f"{where}.type must name a kind of part, such as text", param=f"{where}.type")


def _tool_calls(entry: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    calls = entry.get("tool_calls")
    if not isinstance(calls, list):
        legacy = entry.get("function_call")
        calls = [{"function": legacy}] if isinstance(legacy, dict) else []
    return tuple(_tool_call(call) for call in calls if isinstance(call, dict))


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """Old calls come back from many hands: ids may be null, arguments may be an object or broken JSON."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments if arguments is not None else {}).decode()
    return {
        "id": str(call.get("id") or ""),
        "type": "function",
        "function": {"name": str(function.get("name") or ""), "arguments": arguments},
    }


def _texts(message: Message) -> Sequence[str]:
    calls = [call["function"]["arguments"] for call in message.tool_calls]
    return (message.content, message.reasoning or "", message.name or "", *calls)
