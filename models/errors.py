"""What can be wrong with a model file or a template.

ModelError
├── InvalidModel      the file is not what it says; names the field
├── ModelNotFound     no model of that name, or several
├── ModelInUse        it cannot be moved or changed while it is loaded
├── DoesNotFit        the plan needs more memory than there is; numbers and a way out that fits
├── StoreError        the user's store cannot be used
├── TransferError     a download cannot go on; says what to do
│   ├── AddressRefused    not a name or address of the configured hub, or a file name that must not be written
│   ├── NoSpace           the disk; numbers
│   └── WrongContent      the bytes are not what the publisher said they are
└── TemplateError     the chat template cannot be used for these messages
    └── TemplateTooLarge  its source or its output is over the limit
"""

from models.limits import GIB


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


class ModelInUse(ModelError):
    """The model is loaded: unload it first. The message says how."""


class DoesNotFit(ModelError):
    """Found before anything is loaded. `advice` are changes that would fit, the best first."""

    def __init__(self, needs_bytes: int, free_bytes: int, where: str, advice: tuple[str, ...] = ()) -> None:
        way_out = f": use {' or '.join(advice)}" if advice else ": free memory, or take a smaller model"
        super().__init__(f"needs {needs_bytes / GIB:.1f} GiB of {where}, {free_bytes / GIB:.1f} GiB free{way_out}")
        self.needs_bytes = needs_bytes
        self.free_bytes = free_bytes
        self.where = where
        self.advice = advice


class StoreError(ModelError):
    """The store cannot be opened or written. Nothing was changed."""


class TransferError(ModelError):
    """A download stopped. What was verified is kept unless the message says otherwise."""


class AddressRefused(TransferError):
    pass


class NoSpace(TransferError):
    def __init__(self, needs_bytes: int, free_bytes: int, what: str) -> None:
        super().__init__(
            f"{what} needs {needs_bytes / GIB:.1f} GiB of disk space, {free_bytes / GIB:.1f} GiB are free: make room, "
            f"then go on where it stopped with the same command"
        )
        self.needs_bytes = needs_bytes
        self.free_bytes = free_bytes


class WrongContent(TransferError):
    pass
