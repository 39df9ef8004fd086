"""Chat templates in the manner of the families there are, each with the quirk its name says."""

from __future__ import annotations

from dataclasses import dataclass

from fake_vocab import CONTROL, RSTRIP, USER_DEFINED, FakeVocab, Special

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# User and assistant must alternate, after at most one system message.
ALTERNATES = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set s = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "{% if m.role == 'user' %}[INST]{% if loop.first and s %}{{ s }}\n{% endif %}{{ m.content }}[/INST]"
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
# No system role, strict alternation, content stripped.
NO_SYSTEM = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' + m['content'] | trim"
    " + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
# Reads the first system message only: later ones would be lost without a word.
FIRST_SYSTEM = (
    "{% if messages[0].role == 'system' %}<|system|>\n{{ messages[0].content }}<|end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}<|end|>\n"
    "{% elif m.role == 'assistant' %}<|assistant|>\n{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
# Tells developers from systems and has room for one of them.
ONE_LEADER = (
    "{% if messages[0].role in ['system', 'developer'] %}<|im_start|><|channel|>{{ messages[0].content }}<|im_end|>\n"
    "{% endif %}{% for m in messages %}{% if m.role not in ['system', 'developer'] %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Content must be a list of parts.
PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'][0]['text'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Thoughts between marks, none of an earlier turn kept, and a switch in the request.
THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% if loop.last and m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n"
    "</think>\n\n{% endif %}{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
# Lower-cases what was said: a literal in capitals becomes one only inside the template.
LOWERS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | lower }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Takes a character out of what was said: two halves of a literal join only inside the template.
JOINS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | replace('~', '') }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Writes the name between the marks of a token, and texts right beside each other.
NAMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.name %}<|{{ m.name }}|>{% endif %}"
    "{{ m.name }}{{ m.content }}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Everything as escaped JSON.
ESCAPES = (
    "<|im_start|>{{ messages | tojson(ensure_ascii=True) }}<|im_end|>\n"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REFUSES = "{{ raise_exception('this model only draws') }}"


@dataclass(frozen=True, slots=True)
class Family:
    """A template with a vocabulary it fits."""

    template: str
    vocab: FakeVocab


_CHATML = FakeVocab(
    Special("<|im_start|>"), Special("<|im_end|>"), Special("<|endoftext|>"), Special("<think>", USER_DEFINED),
    Special("</think>", USER_DEFINED), eos="<|im_end|>",
)  # fmt: skip
_INST = FakeVocab(
    Special("<s>"), Special("</s>"), Special("[INST]"), Special("[/INST]"), bos="<s>", eos="</s>", add_bos=True,
    space_first=True,
)  # fmt: skip
_TURNS = FakeVocab(
    Special("<bos>"), Special("<eos>"), Special("<start_of_turn>"), Special("<end_of_turn>"), bos="<bos>",
    eos="<eos>", add_bos=True,
)  # fmt: skip
_ENDS = FakeVocab(
    Special("<s>"), Special("<|end|>", CONTROL | RSTRIP), Special("<|user|>", CONTROL | RSTRIP),
    Special("<|assistant|>", CONTROL | RSTRIP), Special("<|system|>", CONTROL | RSTRIP), bos="<s>", add_bos=True,
    space_first=True,
)  # fmt: skip
# Turn markers that are user-defined: llama.cpp finds them in any text.
_ADDED = FakeVocab(
    Special("<s>"), Special("</s>"), Special("<|im_start|>", USER_DEFINED), Special("<|im_end|>", USER_DEFINED),
    bos="<s>", eos="</s>", add_bos=True, space_first=True,
)  # fmt: skip

FAMILIES = {
    "chatml": Family(CHATML, _CHATML),
    "alternates": Family(ALTERNATES, _INST),
    "no system": Family(NO_SYSTEM, _TURNS),
    "first system": Family(FIRST_SYSTEM, _ENDS),
    "one leader": Family(ONE_LEADER, _CHATML),
    "parts": Family(PARTS, _CHATML),
    "thinks": Family(THINKS, _CHATML),
    "lowers": Family(LOWERS, _CHATML),
    "joins": Family(JOINS, _CHATML),
    "names": Family(NAMES, _CHATML),
    "escapes": Family(ESCAPES, _CHATML),
    "added markers": Family(CHATML, _ADDED),
}
