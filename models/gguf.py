"""What a GGUF file says, read without trusting it. Owns nothing; reads the header, never the weights.

`read_model` takes apart one header (versions 2 and 3, split files) within the limits of models.limits and returns a
frozen ModelInfo. `check_loadable` also refuses what is known to abort llama.cpp: call it before a file is loaded.
Everything wrong with a file is an InvalidModel that names the field; nothing else is raised for bad content. Nothing is
mapped, and nothing is allocated because a header says so.

The parts are in models/header, in reading order: cursor, metadata, tensors, shards, facts, build, loadable.
"""

from __future__ import annotations

from pathlib import Path

from models.header.build import build_info
from models.header.info import (
    Attention,
    Experts,
    ModelInfo,
    Recurrent,
    Rope,
    Tokenizer,
    TypeShare,
    Vocabulary,
    at_layer,
)
from models.header.loadable import check_model
from models.header.shards import first_part, open_model
from models.header.tensors import TensorInfo

__all__ = [
    "Attention",
    "Experts",
    "ModelInfo",
    "Recurrent",
    "Rope",
    "TensorInfo",
    "Tokenizer",
    "TypeShare",
    "Vocabulary",
    "at_layer",
    "check_loadable",
    "first_part",
    "read_model",
]


def read_model(path: Path | str, *, tokenizer: bool = False) -> ModelInfo:
    """The facts of the model at `path`, which may be any part of a split one.

    With `tokenizer` the tokens, scores and types are made too; otherwise they are passed over.
    Raises InvalidModel.
    """
    with open_model(Path(path)) as opened:
        return build_info(opened, vocabulary=tokenizer)


def check_loadable(path: Path | str) -> ModelInfo:
    """As `read_model`, and proof against what llama.cpp answers with an abort. Raises InvalidModel."""
    with open_model(Path(path)) as opened:
        info = build_info(opened, vocabulary=False)
        check_model(info, opened.facts)
        return info
