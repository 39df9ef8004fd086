"""Boundaries are token offsets where a message ends, for templates and vocabularies of every kind."""

from __future__ import annotations

import pytest
from fake_vocab import FakeVocab, Special
from prompt_templates import FAMILIES, Family

from runtime.render.protocol import Rendered, RenderJob
from runtime.request import ChatRequest, Message
from runtime.worker.boundaries import Pieces, token_offsets
from runtime.worker.compose import LAST_ENDS
from runtime.worker.prompt import Prompt, PromptBuilder
from runtime.worker.renderer import Renderer

CHAT = [
    Message("system", "Be kind é."),
    Message("user", "a < b"),
    Message("assistant", "yes 👩"),
    Message("user", "c"),
]
ENDS = {
    "chatml": "<|im_end|>\n",
    "alternates": ("[/INST]", "</s>"),
    "no system": "<end_of_turn>\n",
    "first system": "<|end|>",
}


def build(family: Family, renderer: Renderer, messages: list[Message]) -> Prompt:
    builder = PromptBuilder(family.vocab, renderer, template=family.template, n_ctx=10**6)
    return builder.build(ChatRequest("r", messages=tuple(messages)))


@pytest.mark.parametrize("name", ENDS)
def test_boundaries_stand_where_messages_end(renderer: Renderer, name: str) -> None:
    family = FAMILIES[name]
    prompt = build(family, renderer, CHAT)
    assert len(prompt.boundaries) >= 2
    assert list(prompt.boundaries) == sorted(set(prompt.boundaries))
    for boundary in prompt.boundaries:
        assert 0 < boundary < len(prompt.tokens)
        assert family.vocab.detokenize(prompt.tokens[:boundary]).decode().endswith(ENDS[name])


@pytest.mark.parametrize("name", ["chatml", "no system", "added markers"])
def test_a_boundary_is_a_boundary_of_the_longer_chat_too(renderer: Renderer, name: str) -> None:
    """The tokens before it are the same: that is what a cached state needs."""
    family = FAMILIES[name]
    shorter, longer = build(family, renderer, CHAT[:2]), build(family, renderer, CHAT)
    shared = [boundary for boundary in shorter.boundaries if shorter.tokens[:boundary] == longer.tokens[:boundary]]
    assert shared
    assert set(shared) <= set(longer.boundaries)


def test_they_survive_text_that_was_kept_from_a_token(renderer: Renderer) -> None:
    chat = [*CHAT[:2], Message("assistant", "<|im_end|> é <|im_sta"), Message("user", "\ue000")]
    family = FAMILIES["chatml"]
    prompt = build(family, renderer, chat)
    ends = [family.vocab.detokenize(prompt.tokens[:at]).decode().endswith("<|im_end|>\n") for at in prompt.boundaries]
    assert ends == [True] * 4


class Counting(Renderer):
    """A renderer that remembers its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[RenderJob] = []

    def render(self, job: RenderJob) -> Rendered:
        self.jobs.append(job)
        return super().render(job)


def test_their_cost_does_not_grow_with_the_chat() -> None:
    counting = Counting()
    family = FAMILIES["chatml"]
    builder = PromptBuilder(family.vocab, counting, template=family.template, n_ctx=10**6)
    for n in (1, 20, 200):
        counting.jobs.clear()
        chat = [Message("system", "s"), *(Message("user" if at % 2 else "assistant", f"m{at}") for at in range(1, n))]
        chat.append(Message("user", "end"))
        prompt = builder.build(ChatRequest("r", messages=tuple(chat)))
        jobs = [job for job in counting.jobs if job.cuts]
        assert len(jobs) == 1, "one round trip"
        assert len(jobs[0].cuts) <= LAST_ENDS + 1
        assert len(prompt.boundaries) == min(n + 1, LAST_ENDS + 1)
    counting.close()


def offsets(pieces: list[bytes], text: str, ends: list[int], n_head: int = 0) -> tuple[int, ...]:
    return token_offsets(text, ends, list(range(len(pieces))), Pieces(pieces.__getitem__), n_head=n_head)


def test_an_end_inside_a_token_is_left_out() -> None:
    assert offsets([b"ab", b"cd", b"e"], "abcde", [1, 2, 4]) == (1, 2)


def test_ends_count_characters_tokens_count_bytes() -> None:
    assert offsets(["é".encode(), b"\xf0\x9f", b"\x99\x82", b"x"], "é🙂x", [1, 2]) == (1, 3)


def test_tokens_the_tokenizer_adds_are_counted() -> None:
    assert offsets([b"<s>", b"ab", b"c"], "abc", [2], n_head=1) == (2,)


def test_neither_the_start_nor_the_end_is_a_boundary() -> None:
    assert offsets([b"ab", b"c"], "abc", [0, 3]) == ()


def test_spaces_put_in_or_left_out_are_walked_over() -> None:
    assert offsets([b"<a>", b" hi", b"<b>", b" yo"], "<a>hi<b>\n\nyo", [5, 8]) == (2, 3)


def test_what_cannot_be_matched_ends_the_walk() -> None:
    assert offsets([b"ab", b"??", b"ef"], "abcdefg", [2, 4]) == (1,)


def test_control_lengths_that_agree_by_chance_are_not_believed() -> None:
    """Planted: pieces of the right total length that are not the text."""
    assert offsets([b"abX", b"Xe", b"f"], "abcdef", [3, 5]) == ()
    assert offsets([b"abc", b"de", b"f"], "abcdef", [3, 5]) == (1, 2)


def test_raw_prompts_have_none(renderer: Renderer) -> None:
    builder = PromptBuilder(FakeVocab(Special("<s>")), renderer, template=None, n_ctx=100)
    assert builder.build(ChatRequest("r", text="hello")).boundaries == ()
