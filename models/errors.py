"""What can be wrong with a model file or a template.

ModelError
├── InvalidModel      the file is not what it says; names the field
└── TemplateError     the chat template cannot be used for these messages
"""


class ModelError(Exception):
    """Base of the errors this package raises."""


class InvalidModel(ModelError):
    """A GGUF file that must not be loaded.

    `field` names the header entry at fault ("tensor_count", "general.alignment", "blk.0.attn_q.weight.dims").
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class TemplateError(ModelError):
    """The template raised, ran out of its limits, or produced nothing usable."""
