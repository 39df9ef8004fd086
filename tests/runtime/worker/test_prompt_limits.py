"""What does not fit or cannot be tokenized is refused with its numbers, or trimmed when the client asks for that."""

from __future__ import annotations

import threading

import pytest
from fake_vocab import CHATML as VOCAB
from fake_vocab import FIRST_CHARACTER, FakeVocab, Special
from hypothesis import given
from hypothesis import strategies as st
from prompt_templates import CHATML

from models import limits
from runtime.errors import ContextLengthExceeded, InputRunTooLong, InvalidRequest
from runtime.request import ChatRequest, Message
from runtime.worker.prompt import PromptBuilder
from runtime.worker.renderer import Renderer
from runtime.worker.runs import check_runs
from runtime.worker.trim import first_fitting, oldest_dropped


def builder(renderer: Renderer, n_ctx: int, vocab: FakeVocab = VOCAB) -> PromptBuilder:
    return PromptBuilder(vocab, renderer, template=CHATML, n_ctx=n_ctx)


def turns(n: int, length: int = 10) -> tuple[Message, ...]:
    chat = [Message("system", "SYSTEM")]
    for at in range(n):
        chat += [Message("user", f"u{at}." + "x" * length), Message("assistant", f"a{at}." + "y" * length)]
    return (*chat, Message("user", "LAST"))


# The context.


def test_a_prompt_leaves_room_for_one_token(renderer: Renderer) -> None:
    text = "x" * 99
    assert len(builder(renderer, 100).build(ChatRequest("r", text=text)).tokens) == 99
    with pytest.raises(ContextLengthExceeded) as refused:
        builder(renderer, 99).build(ChatRequest("r", text=text))
    assert refused.value.numbers == {"n_prompt_tokens": 99, "n_ctx": 99}


def test_a_chat_that_is_too_long_is_refused_with_both_numbers(renderer: Renderer) -> None:
    n = len(builder(renderer, 10**6).build(ChatRequest("r", messages=turns(5))).tokens)
    builder(renderer, n + 1).build(ChatRequest("r", messages=turns(5)))
    with pytest.raises(ContextLengthExceeded, match=f"{n} tokens.*{n} tokens"):
        builder(renderer, n).build(ChatRequest("r", messages=turns(5)))


# Trimming.


def test_a_chat_that_fits_is_not_trimmed(renderer: Renderer) -> None:
    assert builder(renderer, 10**6).build(ChatRequest("r", messages=turns(5), truncate="oldest")).dropped == 0


@pytest.mark.parametrize("n_ctx", [400, 600, 1000])
def test_the_oldest_turns_go_and_system_and_last_user_stay(renderer: Renderer, n_ctx: int) -> None:
    request = ChatRequest("r", messages=turns(40), truncate="oldest", max_tokens=50)
    prompt = builder(renderer, n_ctx).build(request)
    text = VOCAB.detokenize(prompt.tokens).decode()
    assert 0 < prompt.dropped < 40
    assert "SYSTEM" in text
    assert "LAST" in text
    assert f"u{prompt.dropped - 1}." not in text
    assert f"a{prompt.dropped - 1}." not in text
    assert all(f"u{at}." in text and f"a{at}." in text for at in range(prompt.dropped, 40))
    room = n_ctx - len(prompt.tokens)
    assert room > 50, "as much as the reply may take is left free"
    assert room < 50 + 2 * 70, "no more turns are dropped than that takes"


def test_little_room_is_better_than_none(renderer: Renderer) -> None:
    """Where even the last turn alone leaves less than the reply wants, it still goes."""
    chat = (Message("user", "old"), Message("assistant", "old"), Message("user", "x" * 300))
    n = len(builder(renderer, 10**6).build(ChatRequest("r", messages=chat[2:])).tokens)
    prompt = builder(renderer, n + 5).build(ChatRequest("r", messages=chat, truncate="oldest", max_tokens=100))
    assert (len(prompt.tokens), prompt.dropped) == (n, 1)


def test_what_no_trimming_makes_fit_is_refused(renderer: Renderer) -> None:
    chat = (*turns(3)[:-1], Message("user", "x" * 500))
    shortest = len(builder(renderer, 10**6).build(ChatRequest("r", messages=(chat[0], chat[-1]))).tokens)
    with pytest.raises(ContextLengthExceeded) as refused:
        builder(renderer, 300).build(ChatRequest("r", messages=chat, truncate="oldest"))
    assert refused.value.numbers == {"n_prompt_tokens": shortest, "n_ctx": 300}


def test_a_single_turn_has_nothing_to_drop(renderer: Renderer) -> None:
    with pytest.raises(ContextLengthExceeded):
        builder(renderer, 50).build(ChatRequest("r", messages=(Message("user", "x" * 99),), truncate="oldest"))


ROLES = st.lists(st.sampled_from(["system", "user", "assistant", "tool", "developer"]), max_size=12)


@given(ROLES)
def test_trimmed_chats_are_ends_of_the_chat_without_its_system_messages(roles: list[str]) -> None:
    chat = tuple(Message(role, str(at)) for at, role in enumerate(roles))
    said = [message for message in chat if message.role not in ("system", "developer")]
    systems = [message for message in chat if message.role in ("system", "developer")]
    before = len(said)
    for trimmed in oldest_dropped(chat):
        rest = [message for message in trimmed if message.role not in ("system", "developer")]
        assert [message for message in trimmed if message not in rest] == systems
        assert rest == said[len(said) - len(rest) :]
        assert rest[0].role == "user"
        assert len(rest) < before
        before = len(rest)


@given(st.integers(0, 40), st.integers(0, 45))
def test_halving_finds_the_first_that_fits(n: int, fits_from: int) -> None:
    asked: list[int] = []

    def attempt(at: int) -> str | None:
        asked.append(at)
        return f"try {at}" if at >= fits_from else None

    expected = (fits_from, f"try {fits_from}") if fits_from < n else None
    assert first_fitting(n, attempt) == expected
    assert len(asked) <= n.bit_length()


# Raw prompts.


def test_token_prompts_are_taken_as_they_are(renderer: Renderer) -> None:
    vocab = FakeVocab(Special("<s>"), bos="<s>", add_bos=True)
    tokens = (FIRST_CHARACTER + 65, 0)
    assert builder(renderer, 10, vocab).build(ChatRequest("r", tokens=tokens)).tokens == list(tokens)


@pytest.mark.parametrize("bad", [-1, VOCAB.n_tokens, 2**40])
def test_tokens_outside_the_vocabulary_are_refused(renderer: Renderer, bad: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"prompt\[1\] is token {bad}: this model has 0 to {VOCAB.n_tokens - 1}"):
        builder(renderer, 10).build(ChatRequest("r", tokens=(0, bad)))


def test_empty_prompts_start_with_the_start_token_or_are_refused(renderer: Renderer) -> None:
    started = FakeVocab(Special("<s>"), bos="<s>")
    assert builder(renderer, 10, started).build(ChatRequest("r", text="")).tokens == [0]
    with pytest.raises(InvalidRequest, match="no start token"):
        builder(renderer, 10).build(ChatRequest("r", text=""))
    with pytest.raises(InvalidRequest, match="empty list"):
        builder(renderer, 10).build(ChatRequest("r", tokens=()))


# Templates without a token for the end of a turn.


def test_the_plain_template_brings_its_stop_strings(renderer: Renderer) -> None:
    plain = PromptBuilder(FakeVocab(), renderer, template=None, n_ctx=1000)
    prompt = plain.build(ChatRequest("r", messages=(Message("user", "hi"),)))
    assert plain.template_name == "plain"
    assert prompt.stop == ("\nUser:", "\nAssistant:")
    assert builder(renderer, 1000).build(ChatRequest("r", messages=(Message("user", "hi"),))).stop == ()


# Start tokens.


def test_the_start_token_is_never_there_twice(renderer: Renderer) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    for add_bos in (False, True):
        vocab = FakeVocab(Special("<s>"), bos="<s>", add_bos=add_bos)
        prompts = PromptBuilder(vocab, renderer, template=template, n_ctx=100)
        assert prompts.build(ChatRequest("r", messages=(Message("user", "hi"),))).tokens.count(0) == 1
        said = prompts.build(ChatRequest("r", messages=(Message("user", "<s>hi"),))).tokens
        assert said.count(0) == 1
        assert vocab.detokenize(said) == b"<s><s>hi"


# Long runs.


@pytest.mark.parametrize("unit", ["a", " ", "\n", "1", ".", "中", "aB", "._"])
def test_runs_are_bounded_in_bytes(unit: str) -> None:
    n = 1000 // len(unit.encode())
    fits = "words and " + unit * n + (" and" if unit.strip() else "and")
    longer = "words and " + unit * (n + 5) + (" and" if unit.strip() else "and")
    check_runs(fits, max_bytes=1010)
    with pytest.raises(InputRunTooLong, match="break the run up"):
        check_runs(longer, max_bytes=1000)


@given(st.lists(st.sampled_from(["a", "é", "中", "👩", " ", "\n", "."]), max_size=60).map("".join), st.integers(1, 40))
def test_looking_at_a_few_places_finds_what_looking_everywhere_finds(text: str, bound: int) -> None:
    longest = max((len(run.encode()) for run in _runs(text)), default=0)
    if longest > bound:
        with pytest.raises(InputRunTooLong) as refused:
            check_runs(text, max_bytes=bound)
        assert refused.value.numbers["n_run_bytes"] > bound
    else:
        check_runs(text, max_bytes=bound)


def _runs(text: str) -> list[str]:
    runs: list[str] = []
    for character in text:
        if runs and runs[-1][-1].isspace() == character.isspace():
            runs[-1] += character
        else:
            runs.append(character)
    return runs


def test_a_prompt_at_the_limit_is_tokenized_and_one_over_it_refused(renderer: Renderer) -> None:
    prompts = builder(renderer, 10**8)
    assert prompts.build(ChatRequest("r", text="a" * limits.INPUT_RUN_BYTES)).tokens
    with pytest.raises(InputRunTooLong) as refused:
        prompts.build(ChatRequest("r", text="a" * (limits.INPUT_RUN_BYTES + 1)))
    assert refused.value.info().code == "input_run_too_long"
    assert refused.value.numbers == {
        "n_run_bytes": limits.INPUT_RUN_BYTES + 1,
        "max_run_bytes": limits.INPUT_RUN_BYTES,
    }


@pytest.mark.weights
@pytest.mark.parametrize("unit", ["a", "1", ".", " ", "\n", "中", "aB"])
def test_the_starter_model_tokenizes_the_longest_run_on_the_deep_stack(starter: object, unit: str) -> None:
    text = unit * (limits.INPUT_RUN_BYTES // len(unit.encode()))
    lengths: list[int] = []

    def tokenize() -> None:
        lengths.append(len(starter.vocab.tokenize(text, add_special=True, parse_special=True)))  # type: ignore[attr-defined]

    before = threading.stack_size(limits.TOKENIZE_STACK_BYTES)
    try:
        thread = threading.Thread(target=tokenize)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert lengths[0] > 0
