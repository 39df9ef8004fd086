"""Every number of the table of limits, stated a second time: a limit changes only on purpose."""

from __future__ import annotations

import pytest

from models import limits

KIB, MIB, GIB = 2**10, 2**20, 2**30

# As the page of limits gives them.
STATED = {
    "BODY_BYTES": 32 * MIB,
    "BODY_BYTES_BOUND": GIB,
    "HEADER_BYTES": 32 * KIB,
    "HEADER_COUNT": 100,
    "JSON_DEPTH": 64,
    "RECEIVE_S": 30,
    "KEEP_ALIVE_S": 75,
    "CONNECTIONS": 512,
    "WAITING_PER_MODEL": 256,
    "MESSAGES": 4096,
    "TEXT_BYTES": 16 * MIB,
    "N_CHOICES": 8,
    "N_CHOICES_BOUND": 16,
    "STOP_STRINGS": 32,
    "STOP_BYTES": 512,
    "LOGIT_BIAS_ENTRIES": 1024,
    "TOP_LOGPROBS": 20,
    "MODEL_NAME_BYTES": 256,
    "INPUT_RUN_BYTES": MIB,
    "TOKENIZE_STACK_BYTES": 512 * MIB,
    "TEMPLATE_BYTES": 256 * KIB,
    "RENDER_S": 1,
    "RENDER_MEMORY_BYTES": 256 * MIB,
    "RENDER_OUTPUT_BYTES": 16 * MIB,
    "GGUF_KEYS": 4096,
    "GGUF_STRING_BYTES": 10 * MIB,
    "GGUF_ARRAY_ELEMENTS": 4 * MIB,
    "GGUF_TENSORS": 65_536,
    "GGUF_DIMS": 4,
    "GGUF_ELEMENTS": 2**48,
    "GGUF_ALIGNMENT_MIN": 8,
    "GGUF_ALIGNMENT_MAX": 4096,
    "GGUF_BLOCKS_MAX": 512,
    "GGUF_VOCAB_MAX": 2_000_000,
    "FILE_MODE": 0o600,
    "FOLDER_MODE": 0o700,
}

# Ours, beyond that page: they bound what the ones above leave open.
ADDED = {
    "PROMPTS": 128,
    "GGUF_KEY_BYTES": 256,
    "GGUF_STRINGS": 2_000_000 + 4 * MIB,
    "GGUF_HEADER_BYTES": 256 * MIB,
}

UNITS = {"KIB": KIB, "MIB": MIB, "GIB": GIB}


def numbers() -> dict[str, float]:
    return {name: value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int | float)}


@pytest.mark.parametrize("name", STATED | ADDED | UNITS)
def test_a_limit_is_what_the_table_says(name: str) -> None:
    assert numbers()[name] == (STATED | ADDED | UNITS)[name]


def test_every_limit_is_stated_here() -> None:
    assert set(numbers()) == set(STATED | ADDED | UNITS)


def test_a_bound_is_never_below_its_default() -> None:
    bounds = [name for name in numbers() if name.endswith("_BOUND")]
    assert bounds
    for name in bounds:
        assert numbers()[name] >= numbers()[name.removesuffix("_BOUND")]


def test_control_a_limit_that_is_not_stated_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted faults: a limit nobody stated, and one that was changed."""
    monkeypatch.setattr(limits, "NEW_LIMIT", 1, raising=False)
    monkeypatch.setattr(limits, "GGUF_KEYS", 4097)
    stated = STATED | ADDED | UNITS
    assert set(numbers()) - set(stated) == {"NEW_LIMIT"}
    assert [name for name, value in stated.items() if numbers()[name] != value] == ["GGUF_KEYS"]
