"""From a chat to shielded text: the shape the template takes, rendered by the child, with the reply's beginning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from models.templates.normalise import Chat, ChatMessage, shapes
from runtime.errors import InvalidRequest, TemplateFailed
from runtime.render.masks import swap
from runtime.render.protocol import Rendered, RenderJob
from runtime.request import ChatRequest
from runtime.worker import prefill
from runtime.worker.conversation import texts, to_chat, to_tools
from runtime.worker.renderer import Renderer, TemplateRaised
from runtime.worker.said import says_all
from runtime.worker.shield import Shield
from runtime.worker.tokens import SafeTokenizer, VocabLike

# How many of the last messages are looked at for the place where they end.
LAST_ENDS = 8

RESERVED = ("messages", "tools", "bos_token", "eos_token", "add_generation_prompt")


@dataclass(frozen=True, slots=True)
class Composed:
    """`text` is shielded; `ends` are offsets in it where messages end."""

    text: str
    shield: Shield
    ends: tuple[int, ...]


class Composer:
    """One template for one vocabulary. Only the prompt thread calls it."""

    def __init__(self, vocab: VocabLike, renderer: Renderer, source: str) -> None:
        self._renderer = renderer
        self._source = source
        self._bos = vocab.piece(vocab.bos, special=True).decode(errors="replace") if vocab.bos >= 0 else ""
        self._eos = vocab.piece(vocab.eos, special=True).decode(errors="replace") if vocab.eos >= 0 else ""
        self._strip_bos = vocab.add_bos and bool(self._bos)
        self._strip_eos = vocab.add_eos and bool(self._eos)

    def scaffold(self, content: str) -> str:
        """One user message rendered, without a reply begun. Raises TemplateFailed."""
        job = RenderJob(self._source, [{"role": "user", "content": content}], trusted=self._trusted({}, False))
        return self._renderer.render(job).text

    def compose(self, request: ChatRequest, tokenizer: SafeTokenizer) -> Composed:
        """Raises TemplateFailed and InvalidRequest."""
        # Only templates of this family tell developers from systems; llama.cpp draws the same line.
        keep_developer = "<|channel|>" in self._source
        chat = to_chat(request.messages, tokenizer.literals, keep_developer=keep_developer)
        client = _client_variables(request)
        shield = Shield(tokenizer.literals, [*texts(chat), *texts(client), self._source])
        covered = shield.cover_chat(chat)
        begun = covered.pop() if _is_prefill(chat, request) else None
        job, rendered = self._take(covered, shield.cover_all(client), shield, request.add_generation_prompt)
        text, ends = self._choose(rendered, tokenizer)
        if begun is not None:
            text = self._begin(text, ends, job, {name: swap(said, shield.mask) for name, said in begun.items()})
        return self._without_added(Composed(text, shield, tuple(sorted({end for end in ends if end > 0}))))

    def _take(self, chat: Chat, client: dict[str, Any], shield: Shield, generate: bool) -> tuple[RenderJob, Rendered]:
        """The first shape that is rendered with everything said still in it, else the first that is rendered."""
        masked = shield.mask if any(shield.hides_in(text) for text in texts([chat, client])) else {}
        trusted = self._trusted(client, generate)
        refusal: TemplateFailed | None = None
        partial: tuple[RenderJob, Rendered] | None = None
        for shape in shapes(chat):
            job = RenderJob(self._source, shape, client, trusted, masked, _cuts(shape))
            try:
                rendered = self._renderer.render(job)
            except TemplateRaised as error:
                refusal = refusal or error
                continue
            if says_all(job, rendered):
                return job, rendered
            partial = partial or (job, rendered)
        if partial is not None:
            return partial
        raise refusal or TemplateFailed("the chat template gave no text for these messages")

    def _choose(self, rendered: Rendered, tokenizer: SafeTokenizer) -> tuple[str, tuple[int, ...]]:
        """The unmasked rendering, unless its special tokens show that one of them came out of client text."""
        if rendered.audit is None or tokenizer.control_ids(rendered.text) == tokenizer.control_ids(rendered.audit):
            return rendered.text, rendered.ends
        return rendered.audit, ()

    def _trusted(self, client: dict[str, Any], generate: bool) -> dict[str, Any]:
        now = datetime.now().astimezone()
        defaults = {
            "enable_thinking": True,
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
        }
        chosen = {name: value for name, value in defaults.items() if name not in client}
        always = {"bos_token": self._bos, "eos_token": self._eos, "add_generation_prompt": generate}
        return chosen | always

    def _begin(self, text: str, ends: tuple[int, ...], job: RenderJob, message: ChatMessage) -> str:
        """`text` with the reply begun by `message`."""
        # The first cut is the one after all messages.
        end = ends[0] if ends and ends[0] >= 0 else len(text)
        before, begun = text[:end], text[end:]
        found = self._marks(before, job) if end < len(text) else None
        return prefill.continued(before, begun, found, message)

    def _marks(self, before: str, job: RenderJob) -> prefill.Marks | None:
        trusted = job.trusted | {"add_generation_prompt": False}
        asked = RenderJob(self._source, prefill.with_probes(job.messages), job.client, trusted, job.mask)
        try:
            return prefill.marks(self._renderer.render(asked).text, before)
        except TemplateRaised:
            return None

    def _without_added(self, composed: Composed) -> Composed:
        """Without the tokens the tokenizer adds itself, as llama-server does: never twice."""
        text = composed.text
        n = len(self._bos) if self._strip_bos and text.startswith(self._bos) else 0
        text = text[n:]
        if self._strip_eos and text.endswith(self._eos):
            text = text.removesuffix(self._eos)
        return replace(composed, text=text, ends=tuple(end - n for end in composed.ends if end > n))


def _client_variables(request: ChatRequest) -> dict[str, Any]:
    for name in RESERVED:
        if name in request.template_kwargs:
            raise InvalidRequest(f"chat_template_kwargs.{name} cannot be set", param="chat_template_kwargs")
    tools = to_tools(request.tools)
    return request.template_kwargs | ({"tools": tools} if tools else {})


def _is_prefill(chat: Chat, request: ChatRequest) -> bool:
    last = chat[-1]
    return request.add_generation_prompt and last["role"] == "assistant" and not last.get("tool_calls")


def _cuts(shape: Chat) -> tuple[int, ...]:
    """How many messages to render for each place worth knowing, the likeliest to be reused first."""
    n = len(shape)
    leading = next((at for at, message in enumerate(shape) if message["role"] != "system"), n)
    return tuple(dict.fromkeys([n, *([leading] if leading else []), *range(n - 1, max(0, n - LAST_ENDS), -1)]))
