"""Messages of a request as the dicts chat templates know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from models.templates.normalise import Chat, ChatMessage
from runtime.errors import InvalidRequest
from runtime.request import Message
from runtime.worker.literals import Literals

# Roles templates compare with. Another role is passed on as it is, unless a special token holds it.
ROLES = ("system", "developer", "user", "assistant", "tool", "ipython", "model")
_SAME = {"function": "tool", "developer": "system"}
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_. -]{0,31}")


def to_chat(messages: tuple[Message, ...], literals: Literals, *, keep_developer: bool) -> Chat:
    """Raises InvalidRequest for no messages and for roles that cannot be used."""
    if not messages:
        raise InvalidRequest("messages is empty: send at least one message", param="messages")
    return [_to_dict(at, message, literals, keep_developer) for at, message in enumerate(messages)]


def to_tools(tools: tuple[dict[str, Any], ...]) -> list[dict[str, Any]] | None:
    """Tools in the shape templates are written for; None where there are none."""
    functions = [tool.get("function") for tool in tools]
    return [_tool(function) for function in functions if isinstance(function, dict)] or None


def texts(value: Any) -> Iterator[str]:
    """Every text inside `value`, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def _to_dict(at: int, message: Message, literals: Literals, keep_developer: bool) -> ChatMessage:
    made: ChatMessage = {"role": _role(at, message.role, literals, keep_developer), "content": message.content}
    if message.name:
        made["name"] = message.name
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    return made


def _role(at: int, role: str, literals: Literals, keep_developer: bool) -> str:
    if role not in ROLES and role not in _SAME:
        # Templates write roles between the marks of a special token ("<|" + role + "|>").
        inside = any(role.lower() in literal.lower() for literal in literals.ids)
        if inside or not _ROLE.fullmatch(role):
            raise InvalidRequest(
                f"messages[{at}].role is {role[:40]!r}: use one of {', '.join(ROLES)}", param=f"messages[{at}].role"
            )
    return role if keep_developer and role == "developer" else _SAME.get(role, role)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    made = {
        "type": "function",
        "function": {"name": str(function.get("name") or ""), "arguments": _arguments(function.get("arguments"))},
    }
    return {"id": str(call["id"]), **made} if call.get("id") else made


def _arguments(sent: Any) -> dict[str, Any]:
    """The client's own text and, where that is a JSON object, its value. History may hold anything."""
    if isinstance(sent, dict):
        return {"text": json.dumps(sent, ensure_ascii=False), "value": sent}
    text = sent if isinstance(sent, str) else ""
    try:
        value = json.loads(text)
        # Half of a surrogate pair is valid JSON and no text.
        json.dumps(value, ensure_ascii=False).encode()
        # The render child gets it as msgpack, which ends at 64 bits and knows a depth.
        msgspec.msgpack.encode(value)
    except (ValueError, RecursionError, OverflowError):
        value = None
    return {"text": text, "value": value if isinstance(value, dict) else None}


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    described = {
        "name": str(function.get("name") or ""),
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }
    return {"type": "function", "function": described}
