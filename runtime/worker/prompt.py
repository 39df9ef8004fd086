"""From a request to the tokens of its prompt. Only the prompt thread, which has a deep stack, calls this.

A chat is rendered by the template, made into tokens in which client text is never a control token, and held against the
context. `text` prompts are raw completions: their special tokens are meant, as in llama-server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from models.templates import builtin
from runtime.errors import ContextLengthExceeded, InvalidRequest, TemplateFailed
from runtime.request import ChatRequest, Message
from runtime.worker.boundaries import Pieces, token_offsets
from runtime.worker.compose import Composer
from runtime.worker.markers import PROBE, turn_markers
from runtime.worker.renderer import Renderer, TemplateRaised
from runtime.worker.runs import check_runs
from runtime.worker.tokens import SafeTokenizer, VocabLike, control_texts
from runtime.worker.trim import first_fitting, oldest_dropped

# Left free for the reply when turns are dropped: that many tokens, but never more than a quarter of the context.
REPLY_ROOM = 512


@dataclass(frozen=True, slots=True)
class Prompt:
    """`boundaries` are token offsets where messages end: sorted, strictly inside. `dropped` counts turns left out.

    `stop` ends the reply of a model whose template has no token for the end of a turn.
    """

    tokens: list[int]
    boundaries: tuple[int, ...] = ()
    dropped: int = 0
    stop: tuple[str, ...] = ()


class PromptBuilder:
    """Prompts for one model. `template_name` is "model" or the name of the built-in template in use.

    `template` is the model's own, a name out of the built-in table, or None: then one is chosen from the vocabulary.
    """

    def __init__(self, vocab: VocabLike, renderer: Renderer, *, template: str | None, n_ctx: int) -> None:
        self._vocab = vocab
        self._n_ctx = n_ctx
        self._stop: tuple[str, ...] = ()
        self.template_name = "model"
        if not template or template in builtin.NAMES:
            row = builtin.named(template) if template else builtin.choose(control_texts(vocab))
            template, self.template_name, self._stop = builtin.source(row.name), row.name, row.stop
        self._composer = Composer(vocab, renderer, template)
        self._tokenizer: SafeTokenizer | None = None
        self._pieces = Pieces(vocab.piece)

    def build(self, request: ChatRequest) -> Prompt:
        """Raises TemplateFailed, ContextLengthExceeded, InputRunTooLong and InvalidRequest."""
        if request.tokens is not None:
            return self._checked(Prompt(self._given(request.tokens)))
        if request.text is not None:
            return self._checked(Prompt(self._raw(request.text)))
        prompt = self._chat(request)
        if len(prompt.tokens) >= self._n_ctx and request.truncate == "oldest":
            return self._trimmed(request, prompt)
        return self._checked(prompt)

    def _checked(self, prompt: Prompt) -> Prompt:
        if len(prompt.tokens) >= self._n_ctx:
            raise ContextLengthExceeded(len(prompt.tokens), self._n_ctx)
        return prompt

    def _given(self, tokens: tuple[int, ...]) -> list[int]:
        if not tokens:
            raise InvalidRequest("prompt is an empty list of tokens: send at least one", param="prompt")
        n = self._vocab.n_tokens
        for at, id in enumerate(tokens):
            if not 0 <= id < n:
                raise InvalidRequest(f"prompt[{at}] is token {id}: this model has 0 to {n - 1}", param="prompt")
        return list(tokens)

    def _raw(self, text: str) -> list[int]:
        check_runs(text)
        tokens = self._vocab.tokenize(text, add_special=True, parse_special=True)
        if not tokens and self._vocab.bos >= 0:
            return [self._vocab.bos]
        if not tokens:
            raise InvalidRequest("prompt is empty and this model has no start token: send some text", param="prompt")
        return tokens

    def _chat(self, request: ChatRequest) -> Prompt:
        tokenizer = self._safe_tokenizer()
        composed = self._composer.compose(request, tokenizer)
        plain = composed.shield.reveal(composed.text)
        check_runs(plain)
        tokens = tokenizer.tokenize(composed.text, composed.shield)
        if not tokens:
            raise TemplateFailed("the chat template gave no text for these messages")
        ends = [len(composed.shield.reveal(composed.text[:end])) for end in composed.ends]
        offsets = token_offsets(plain, ends, tokens, self._pieces, n_head=tokenizer.n_head)
        return Prompt(tokens, offsets, stop=self._stop)

    def _trimmed(self, request: ChatRequest, whole: Prompt) -> Prompt:
        """With as few turns dropped as leave room for a reply, else as leave room for one token."""
        choices = oldest_dropped(request.messages)
        room = min(request.max_tokens or REPLY_ROOM, self._n_ctx // 4)
        for most in (self._n_ctx - 1 - room, self._n_ctx - 1):
            found = first_fitting(len(choices), partial(self._within, request, choices, most))
            if found is not None:
                at, prompt = found
                return replace(prompt, dropped=at + 1)
        shortest = self._chat(replace(request, messages=choices[-1])) if choices else whole
        raise ContextLengthExceeded(len(shortest.tokens), self._n_ctx)

    def _within(self, request: ChatRequest, choices: list[tuple[Message, ...]], most: int, at: int) -> Prompt | None:
        prompt = self._chat(replace(request, messages=choices[at]))
        return prompt if len(prompt.tokens) <= most else None

    def _safe_tokenizer(self) -> SafeTokenizer:
        # Made with the first chat, because it needs the render child; loading a model does not wait for that.
        if self._tokenizer is None:
            try:
                turns = turn_markers(self._vocab, self._composer.scaffold(PROBE))
            except TemplateRaised:
                # A template that refuses a single user message still has its control tokens guarded.
                turns = {}
            self._tokenizer = SafeTokenizer(self._vocab, turns.items())
        return self._tokenizer
