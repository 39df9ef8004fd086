"""The shapes of one chat, from the shape the client sent to the plainest a template could insist on.

A message is a dict as templates know it: role, content (text), perhaps name, reasoning_content, tool_call_id, and
tool_calls whose function arguments are `{"text", "value"}`. Every step is a pure function, and none changes what stands
before a message because of what stands after it: the rendered beginning of a growing chat stays the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

ChatMessage = dict[str, Any]
Chat = list[ChatMessage]
Step = Callable[[Chat], Chat]

# Said in place of what a template has no room for.
SYSTEM_MARK = "[System message]"
TOOL_MARK = "[Tool result]"
CALL_MARK = "[Tool call]"
OPENER = "(The assistant speaks first.)"


def developer_as_system(chat: Chat) -> Chat:
    """Developers speak as system where a template that tells them apart has room for one of them only."""
    return [message | {"role": "system"} if message["role"] == "developer" else message for message in chat]


def merge_leading_systems(chat: Chat) -> Chat:
    """One system message where several begin the chat."""
    n = _leading(chat)
    return [_system(_joined(chat[:n], "\n\n")), *chat[n:]] if n > 1 else chat


def demote_later_systems(chat: Chat) -> Chat:
    """System messages after the first turn become user turns that say so."""
    n = _leading(chat)
    return chat[:n] + [_demoted(message) for message in chat[n:]]


def fold_system(chat: Chat) -> Chat:
    """No system role at all: what it said leads the first user turn."""
    n = _leading(chat)
    if not n:
        return chat
    said, rest = _joined(chat[:n], "\n"), chat[n:]
    if rest and rest[0]["role"] == "user":
        return [rest[0] | {"content": f"{said}\n{rest[0]['content']}"}, *rest[1:]]
    return [_user(said), *rest]


def open_with_user(chat: Chat) -> Chat:
    """A user turn before an assistant that speaks first, or where there is no turn at all."""
    n = _leading(chat)
    if n < len(chat) and chat[n]["role"] == "user":
        return chat
    return [*chat[:n], _user(OPENER), *chat[n:]]


def merge_same_roles(chat: Chat) -> Chat:
    """Turns of one role in a row become one turn, so that user and assistant alternate."""
    merged: Chat = []
    for message in chat:
        if merged and _mergeable(merged[-1], message):
            merged[-1] = merged[-1] | {"content": _joined([merged[-1], message], "\n\n")}
        else:
            merged.append(message)
    return merged


def tools_as_text(chat: Chat) -> Chat:
    """Tool calls and their results as ordinary turns, for templates that know neither."""
    return [_plain_tool(message) for message in chat]


def content_as_parts(chat: Chat) -> Chat:
    """Content as a list with one text part, for templates that read `content[0].text`."""
    return [message | {"content": [{"type": "text", "text": message["content"]}]} for message in chat]


_LEADING: tuple[Step, ...] = (developer_as_system, merge_leading_systems)
_SYSTEMS: tuple[Step, ...] = (*_LEADING, demote_later_systems)
_ALTERNATE: tuple[Step, ...] = (open_with_user, merge_same_roles)

# From "as it came" down. Where two rungs give the same messages, the second is not tried.
_RUNGS: tuple[tuple[Step, ...], ...] = (
    (),
    _LEADING,
    _SYSTEMS,
    (*_SYSTEMS, *_ALTERNATE),
    (*_SYSTEMS, fold_system),
    (*_SYSTEMS, fold_system, *_ALTERNATE),
    (tools_as_text, *_SYSTEMS, *_ALTERNATE),
    (tools_as_text, *_SYSTEMS, fold_system, *_ALTERNATE),
)


def shapes(chat: Chat) -> Iterator[Chat]:
    """Different shapes of `chat`, the least changed first. Lazily: an ordinary chat needs only the first."""
    tried: list[Chat] = []
    for last in ((), (content_as_parts,)):
        for rung in _RUNGS:
            shape = chat
            for step in (*rung, *last):
                shape = step(shape)
            if shape not in tried:
                tried.append(shape)
                yield shape


def _leading(chat: Chat) -> int:
    return next((at for at, message in enumerate(chat) if message["role"] != "system"), len(chat))


def _joined(chat: Chat, between: str) -> str:
    return between.join(message["content"] for message in chat if message["content"])


def _system(content: str) -> ChatMessage:
    return {"role": "system", "content": content}


def _user(content: str) -> ChatMessage:
    return {"role": "user", "content": content}


def _demoted(message: ChatMessage) -> ChatMessage:
    return _user(f"{SYSTEM_MARK}\n{message['content']}") if message["role"] == "system" else message


def _mergeable(first: ChatMessage, second: ChatMessage) -> bool:
    role = first["role"]
    if role != second["role"] or role not in ("user", "assistant"):
        return False
    return not (first.get("tool_calls") or second.get("tool_calls"))


def _plain_tool(message: ChatMessage) -> ChatMessage:
    if message["role"] == "tool":
        name = message.get("name") or message.get("tool_call_id") or ""
        return _user(f"{TOOL_MARK} {name}".rstrip() + f"\n{message['content']}")
    if message.get("tool_calls"):
        calls = [call["function"] for call in message["tool_calls"]]
        lines = [f"{CALL_MARK} {call['name']} {call['arguments']['text']}" for call in calls]
        said = [message["content"]] if message["content"] else []
        return {"role": message["role"], "content": "\n".join(said + lines)}
    return message
