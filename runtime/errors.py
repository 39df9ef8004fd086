"""Every error a request can meet. `code` is for programs, the message is for people and says the way out.

HeadraceError
├── RequestError            the request cannot be served as it is
│   ├── InvalidRequest          400  a field is wrong; `param` names it
│   ├── UnsupportedFeature      400  understood, not offered here
│   ├── ContextLengthExceeded   400  prompt longer than the context, with both numbers
│   ├── InputRunTooLong         400  one run of a character class no tokenizer should be given
│   ├── TemplateFailed          400  the chat template refused these messages
│   ├── Unauthorized            401
│   ├── Forbidden               403  foreign Host or Origin
│   ├── NotFound                404
│   ├── MethodNotAllowed        405
│   ├── BodyTooLarge            413
│   ├── UnsupportedMedia        415
│   ├── Unprocessable           422  grammar or schema, with a position
│   ├── Overloaded              429  queue full; `retry_after_s`
│   └── HeadersTooLarge         431
├── ModelProblem            the model cannot be used
│   ├── InvalidModelFile        400  header refused, names the field
│   ├── ModelLoadFailed         500  llama.cpp refused it; its log line is the message
│   ├── ModelDoesNotFit         503  more memory than is free; with both numbers
│   ├── ModelBusy               409  it has live requests; says how many
│   ├── ModelLoading            503
│   └── ModelDisabled           503  crashed too often; says why
└── EngineProblem           the reply was lost
    ├── EngineCrashed           500
    ├── EngineTimeout           500  the worker hung and was restarted
    ├── NumericError            500  NaN in the logits
    ├── DecodeFailed            500
    └── ShuttingDown            503
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as it travels in frames. `numbers` holds what clients parse, such as n_prompt_tokens."""

    code: str
    message: str
    status: int
    type: str = "api_error"
    param: str | None = None
    numbers: dict[str, int] = field(default_factory=dict)


class HeadraceError(Exception):
    """Base. Subclasses set `code`, `status` and `type`; the constructor takes the message."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    type: ClassVar[str] = "api_error"

    def __init__(self, message: str, *, param: str | None = None, numbers: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.numbers = numbers or {}

    def info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.status, self.type, self.param, self.numbers)


class RequestError(HeadraceError):
    code, status, type = "invalid_request", 400, "invalid_request_error"


class InvalidRequest(RequestError):
    pass


class UnsupportedFeature(RequestError):
    code = "unsupported_feature"


class ContextLengthExceeded(RequestError):
    """The wording is what coding agents look for; both numbers travel as fields too."""

    code, type = "context_length_exceeded", "exceed_context_size_error"

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        super().__init__(
            f"the request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens): this model's "
            f'maximum context length is {n_ctx} tokens. Shorten the chat, send truncate: "oldest", or serve with a '
            f"larger --ctx",
            numbers={"n_prompt_tokens": n_prompt, "n_ctx": n_ctx},
        )


class InputRunTooLong(RequestError):
    code = "input_run_too_long"


class TemplateFailed(RequestError):
    code = "template_error"


class Unauthorized(RequestError):
    code, status, type = "invalid_api_key", 401, "authentication_error"


class Forbidden(RequestError):
    code, status, type = "forbidden", 403, "permission_error"


class NotFound(RequestError):
    code, status, type = "not_found", 404, "not_found_error"


class MethodNotAllowed(RequestError):
    code, status = "method_not_allowed", 405


class BodyTooLarge(RequestError):
    code, status = "body_too_large", 413


class UnsupportedMedia(RequestError):
    code, status = "unsupported_media_type", 415


class Unprocessable(RequestError):
    code, status = "unprocessable", 422


class Overloaded(RequestError):
    code, status, type = "rate_limit_exceeded", 429, "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message, numbers={"retry_after_s": retry_after_s})


class HeadersTooLarge(RequestError):
    code, status = "headers_too_large", 431


class ModelProblem(HeadraceError):
    type = "model_error"


class InvalidModelFile(ModelProblem):
    code, status = "invalid_model", 400


class ModelLoadFailed(ModelProblem):
    code = "model_load_failed"


class ModelDoesNotFit(ModelProblem):
    code, status = "model_does_not_fit", 503


class ModelBusy(ModelProblem):
    code, status = "model_busy", 409


class ModelLoading(ModelProblem):
    code, status, type = "model_loading", 503, "unavailable_error"


class ModelDisabled(ModelProblem):
    code, status, type = "model_disabled", 503, "unavailable_error"


class EngineProblem(HeadraceError):
    type = "engine_error"


class EngineCrashed(EngineProblem):
    code = "engine_crashed"


class EngineTimeout(EngineProblem):
    code = "engine_timeout"


class NumericError(EngineProblem):
    code = "numeric_error"


class DecodeFailed(EngineProblem):
    code = "decode_failed"


class ShuttingDown(EngineProblem):
    code, status, type = "shutting_down", 503, "unavailable_error"


class RemoteError(HeadraceError):
    """An error that arrived in a frame, raised again with everything it carried."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, param=info.param, numbers=info.numbers)
        self._info = info

    def info(self) -> ErrorInfo:
        return self._info
