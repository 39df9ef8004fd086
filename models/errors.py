"""What can be wrong with a model file or a template.

ModelError
├── InvalidModel      the file is not what it says; names the field
├── ModelNotFound     no model of that name, or several
└── TemplateError     the chat template cannot be used for these messages
    └── TemplateTooLarge  its source or its output is over the limit
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


class TemplateTooLarge(TemplateError):
    """Another shape of the same chat would not help: only another template would."""


class ModelNotFound(ModelError):
    """No model of that name, or several. The message carries no path; `known` are the names there are."""

    def __init__(self, message: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.known = known
