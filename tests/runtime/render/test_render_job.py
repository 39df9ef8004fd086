"""What the child answers: masked renderings, the audit, and where beginnings end."""

from __future__ import annotations

import io

import pytest

from runtime.render import protocol
from runtime.render.job import answer
from runtime.render.masks import inverse, swap, swap_all, swap_message
from runtime.render.protocol import Answer, Rendered, RenderJob

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if add_generation_prompt %}[go]{% endif %}"
LOOKS = "{% for m in messages %}{{ 'tagged' if '<' in m.content else 'bare' }}{{ m.content }}{% endfor %}"
MASK = {"<": "\ue000"}


def rendered(job: RenderJob) -> Rendered:
    reply = answer(job)
    assert reply.rendered is not None, reply.refused
    return reply.rendered


def test_the_masked_rendering_is_the_answer_where_the_template_does_not_look() -> None:
    result = rendered(RenderJob(PLAIN, [{"role": "user", "content": "a<b"}], mask=MASK))
    assert result == Rendered("[user]a\ue000b;")


def test_both_renderings_come_back_where_it_does() -> None:
    result = rendered(RenderJob(LOOKS, [{"role": "user", "content": "a<b"}], mask=MASK))
    assert result == Rendered("taggeda<b", "barea\ue000b")


def test_masks_reach_nested_text_but_neither_roles_nor_keys() -> None:
    call = {"function": {"name": "<f", "arguments": {"text": "<", "value": {"<k": ["<v"]}}}}
    message = {"role": "<user", "content": "<", "tool_calls": [call]}
    masked = swap_message(message, MASK)
    assert masked["role"] == "<user"
    assert masked["tool_calls"][0]["function"] == {
        "name": "\ue000f",
        "arguments": {"text": "\ue000", "value": {"<k": ["\ue000v"]}},
    }
    assert swap_all({"role": "<"}, MASK) == {"role": "\ue000"}


def test_swap_and_inverse_give_the_text_back() -> None:
    table = {"<": "\ue000", "[": "\ue001"}
    assert swap(swap("<[a]>", table), inverse(table)) == "<[a]>"


def test_cuts_say_where_beginnings_end() -> None:
    chat = [{"role": role, "content": role[0]} for role in ("system", "user", "assistant", "user")]
    job = RenderJob(PLAIN, chat, trusted={"add_generation_prompt": True}, cuts=(1, 2, 4))
    result = rendered(job)
    assert [result.text[:end] for end in result.ends] == [
        "[system]s;",
        "[system]s;[user]u;",
        result.text[: -len("[go]")],
    ]


def test_an_end_token_that_closes_a_chat_is_no_part_of_a_beginning() -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    closes = "{% for m in messages %}{{ m.content }};{% endfor %}{{ 'go' if add_generation_prompt else eos_token }}"
    result = rendered(
        RenderJob(closes, chat, trusted={"eos_token": "</s>", "add_generation_prompt": True}, cuts=(1, 2))
    )
    assert (result.text, result.ends) == ("a;b;go", (2, 4))


def test_a_beginning_that_renders_differently_is_no_cut() -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    assert rendered(RenderJob(counts, chat, cuts=(1,))).ends == (-1,)
    refuses = "{% if messages | length < 2 %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}"
    assert rendered(RenderJob(refuses, chat, cuts=(1,))).ends == (-1,)


def test_cuts_are_left_out_once_the_time_for_them_is_used() -> None:
    result = rendered(RenderJob(PLAIN, [{"role": "user", "content": "a"}], cuts=(1,), cut_s=-1.0))
    assert result.ends == (-1,)


def test_what_is_trusted_wins_over_what_the_client_sent() -> None:
    job = RenderJob("{{ bos_token }}{{ mood }}", [], {"bos_token": "forged", "mood": "mild"}, {"bos_token": "<s>"})
    assert rendered(job).text == "<s>mild"


@pytest.mark.parametrize(
    "frame", [b"", b"\x05\x00", b"\x05\x00\x00\x00abc"], ids=["closed", "half a head", "half a body"]
)
def test_a_frame_cut_short_means_the_other_side_is_gone(frame: bytes) -> None:
    assert protocol.read_answer(io.BytesIO(frame), max_bytes=100) is None


def test_frames_over_the_bound_and_nonsense_are_refused() -> None:
    buffer = io.BytesIO()
    protocol.write(buffer, Answer(rendered=Rendered("x" * 200)))
    with pytest.raises(ValueError, match="100 are allowed"):
        protocol.read_answer(io.BytesIO(buffer.getvalue()), max_bytes=100)
    with pytest.raises(ValueError, match="Expected"):
        protocol.read_answer(io.BytesIO(b"\x01\x00\x00\x00\xff"), max_bytes=100)
