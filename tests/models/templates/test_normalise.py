"""The ladder of shapes: nothing said is lost on it, and a growing chat keeps its beginning."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.templates import normalise
from models.templates.normalise import Chat, shapes


def say(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": {"text": '{"a": 1}', "value": {"a": 1}}}}


def test_the_first_shape_is_the_chat_itself() -> None:
    chat = [say("system", "a"), say("system", "b"), say("user", "c")]
    assert next(shapes(chat)) is chat


def test_leading_systems_merge() -> None:
    chat = [say("system", "a"), say("system", ""), say("system", "b"), say("user", "c")]
    assert normalise.merge_leading_systems(chat) == [say("system", "a\n\nb"), say("user", "c")]


def test_developers_speak_as_system_where_only_one_may() -> None:
    chat = [say("developer", "a"), say("system", "b"), say("user", "c")]
    assert normalise.developer_as_system(chat) == [say("system", "a"), *chat[1:]]
    assert [say("system", "a\n\nb"), say("user", "c")] in list(shapes(chat))


def test_later_systems_become_marked_user_turns() -> None:
    chat = [say("system", "a"), say("user", "b"), say("system", "c")]
    assert normalise.demote_later_systems(chat) == [*chat[:2], say("user", "[System message]\nc")]


def test_without_a_system_role_it_leads_the_first_user_turn() -> None:
    chat = [say("system", "a"), say("user", "b", name="n"), say("user", "c")]
    assert normalise.fold_system(chat) == [say("user", "a\nb", name="n"), say("user", "c")]
    assert normalise.fold_system([say("system", "a"), say("assistant", "b")])[0] == say("user", "a")


def test_turns_of_one_role_merge_but_tool_calls_stay_apart() -> None:
    calling = say("assistant", "", tool_calls=[call("f")])
    chat = [say("user", "a"), say("user", "b"), say("assistant", "c"), calling, say("tool", "d"), say("tool", "e")]
    merged = normalise.merge_same_roles(chat)
    assert merged == [say("user", "a\n\nb"), say("assistant", "c"), calling, say("tool", "d"), say("tool", "e")]


@pytest.mark.parametrize("chat", [[], [say("system", "a")], [say("assistant", "hello")]])
def test_a_user_opens(chat: Chat) -> None:
    opened = normalise.open_with_user(chat)
    assert next(message["role"] for message in opened if message["role"] != "system") == "user"


def test_tools_as_text_keep_name_arguments_and_result() -> None:
    chat = [say("assistant", "Let me see.", tool_calls=[call("f"), call("g")]), say("tool", "42", tool_call_id="id1")]
    assert normalise.tools_as_text(chat) == [
        say("assistant", 'Let me see.\n[Tool call] f {"a": 1}\n[Tool call] g {"a": 1}'),
        say("user", "[Tool result] id1\n42"),
    ]


ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
CHATS = st.lists(ROLES, min_size=1, max_size=7).map(
    lambda roles: [say(role, f"word{at}.") for at, role in enumerate(roles)]
)


def words(chat: Chat) -> list[str]:
    text = "\n".join(m["content"] if isinstance(m["content"], str) else m["content"][0]["text"] for m in chat)
    return [word for word in text.split() if word.startswith("word")]


@given(CHATS)
def test_no_shape_loses_or_reorders_a_word(chat: Chat) -> None:
    tried = list(shapes(chat))
    assert all(words(shape) == words(chat) for shape in tried)
    assert all(one not in tried[:at] for at, one in enumerate(tried))


@given(CHATS)
def test_the_last_plain_shape_pleases_the_strictest_template(chat: Chat) -> None:
    strictest = [shape for shape in shapes(chat) if isinstance(shape[0]["content"], str)][-1]
    roles = [message["role"] for message in strictest]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)


STEPS = [
    normalise.developer_as_system,
    normalise.demote_later_systems,
    normalise.fold_system,
    normalise.tools_as_text,
    normalise.merge_leading_systems,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@given(chat=CHATS)
def test_a_step_never_changes_what_stands_before_a_later_turn(step: normalise.Step, chat: Chat) -> None:
    """A chat that has begun (something other than system was said) keeps every message when another is appended."""
    grown = [*chat, say("system", "late"), say("user", "later")]
    if any(message["role"] != "system" for message in chat):
        assert step(grown)[: len(step(chat))] == step(chat)


def test_control_a_step_that_looks_ahead_fails_that_check() -> None:
    """Planted: systems gathered at the front from anywhere in the chat."""

    def gather(chat: Chat) -> Chat:
        return sorted(chat, key=lambda message: message["role"] != "system")

    chat = [say("user", "a")]
    assert gather([*chat, say("system", "late")])[:1] != gather(chat)
