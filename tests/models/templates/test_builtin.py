"""The table of built-in templates: complete, chosen by vocabulary, and usable with every shape of chat."""

from __future__ import annotations

from importlib import resources

import pytest

from models.errors import TemplateError
from models.templates import builtin
from models.templates.render import compile_template, render

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "system", "content": "Be brief."},
    {"role": "tool", "content": "42"},
    {"role": "user", "content": "Bye"},
]
EXPECTED = {
    "chatml": "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!"
    "<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>user\nBye"
    "<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
    "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"
    "42<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant"
    "<|end_header_id|>\n\n",
    "gemma": "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
    "<start_of_turn>user\nBe brief.\n\n42<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "mistral": "<s>[INST]Be kind.\n\nHi[/INST]Hello!</s>[INST]Be brief.\n\n42[/INST][INST]Bye[/INST]",
    "plain": "Be kind.\n\nUser: Hi\n\nAssistant: Hello!\n\nBe brief.\n\nUser: 42\n\nUser: Bye\n\nAssistant:",
}


def run(name: str, messages: list[dict[str, str]], *, generate: bool = True) -> str:
    variables = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": generate}
    return render(compile_template(builtin.source(name)), variables, max_bytes=10_000)


@pytest.mark.parametrize("name", builtin.NAMES)
def test_what_a_builtin_writes(name: str) -> None:
    assert run(name, CHAT) == EXPECTED[name]


@pytest.mark.parametrize("name", builtin.NAMES)
def test_a_chat_that_grows_keeps_its_beginning(name: str) -> None:
    """Appending a turn must not change what is already in the cache."""
    starts = [run(name, CHAT[:n], generate=False) for n in (3, 6)]
    assert starts[1].startswith(starts[0])


@pytest.mark.parametrize("name", builtin.NAMES)
def test_a_system_message_alone_is_not_lost(name: str) -> None:
    assert "Be kind." in run(name, CHAT[:1])


@pytest.mark.parametrize(
    ("literals", "name"),
    [
        (["<|im_start|>", "<|im_end|>"], "chatml"),
        (["<|im_end|>"], "plain"),
        (["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "llama3"),
        (["<start_of_turn>", "<end_of_turn>", "<bos>"], "gemma"),
        (["[INST]", "[/INST]", "<s>"], "mistral"),
        (["<s>", "</s>"], "plain"),
        ([], "plain"),
    ],
)
def test_the_vocabulary_chooses(literals: list[str], name: str) -> None:
    assert builtin.choose(literals).name == name


def test_only_plain_needs_stop_strings() -> None:
    assert [row.name for row in builtin.BUILTINS if row.stop] == ["plain"]
    assert "\nUser:" in builtin.named("plain").stop


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(TemplateError, match="chatml, llama3, gemma, mistral, plain"):
        builtin.source("alpaca")


def test_every_file_has_a_row() -> None:
    files = {entry.name for entry in resources.files("models.templates").iterdir() if entry.name.endswith(".jinja")}
    assert files == {f"{name}.jinja" for name in builtin.NAMES}
