"""The beginning of a reply that the client wrote, put where the template would have the model begin.

What was thought goes between the template's own marks of thinking, and the reply after whatever the template puts
before one. Both are learnt by rendering a reply made of two probes; where the template shows no thoughts, a `<think>`
that it begins replies with is closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.templates.normalise import Chat, ChatMessage

THOUGHT = "zqxthought"
REPLY = "zqxreply"

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Marks:
    """In a rendered assistant turn: what stands before the thought, and between it and the reply.

    `closing` is None where no thought is shown; then `opening` is what stands before the reply.
    """

    opening: str
    closing: str | None


def with_probes(chat: Chat) -> Chat:
    parts = any(isinstance(message["content"], list) for message in chat)
    content = [{"type": "text", "text": REPLY}] if parts else REPLY
    return [*chat, {"role": "assistant", "content": content, "reasoning_content": THOUGHT}]


def marks(rendered: str, before: str) -> Marks | None:
    """From a chat with probes, whose messages before the probes render as `before`."""
    if not rendered.startswith(before):
        return None
    turn, reply, _ = rendered[len(before) :].partition(REPLY)
    if not reply:
        return None
    opening, thought, closing = turn.partition(THOUGHT)
    return Marks(opening, closing if thought else None)


def continued(before: str, begun: str, found: Marks | None, message: ChatMessage) -> str:
    """The prompt: `before`, the messages so far, and the client's beginning of the reply.

    `begun` is what the template puts after `before` to have the model begin.
    """
    content: str = message["content"]
    thought: str = message.get("reasoning_content", "")
    if found is not None and found.closing is not None:
        return before + found.opening + _thought(thought, found.closing, content)
    if begun.rstrip().endswith(OPEN):
        begun = begun.rstrip()[: -len(OPEN)]
        return before + begun + OPEN + _thought(thought, CLOSE, content)
    if thought:
        return before + begun + OPEN + _thought(thought, CLOSE, content)
    # Templates that name a channel or a recipient do so only once there is a reply.
    if found is not None and found.opening.startswith(begun):
        begun = found.opening
    return before + begun + content


def _thought(thought: str, closing: str, content: str) -> str:
    # A thought without a reply goes on as a thought.
    return thought + closing + content if content or not thought else thought
