"""The one place that builds a Jinja environment and renders a template.

The environment is immutable and sandboxed, which keeps a template from running code. It does not keep a template from
using up the machine: that is why only the render child calls this module, under limits of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models import limits
from models.errors import TemplateError, TemplateTooLarge


class GenerationTag(Extension):
    """`{% generation %}` marks what training code counts as the reply. When rendering it is only a pair of brackets."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which would put \u003c into prompts. What filters such as `map`
    # yield is written as a list.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=lambda lazy: list(lazy) if isinstance(lazy, Iterator) else _no_json(lazy),
    )


def _no_json(value: object) -> NoReturn:
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")


def _raise_exception(message: object = "") -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        cache_size=0,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )
    environment.filters["tojson"] = _tojson
    # Nothing is escaped here, so nothing needs marking as safe; a marked text would escape what is joined to it.
    environment.filters["safe"] = str
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


_ENVIRONMENT = _environment()


@lru_cache(maxsize=8)
def compile_template(source: str) -> jinja2.Template:
    """Parse and compile, remembered by source. Raises TemplateError with the line number."""
    size = len(source.encode(errors="surrogatepass"))
    if size > limits.TEMPLATE_BYTES:
        raise TemplateTooLarge(f"its source has {size} bytes, {limits.TEMPLATE_BYTES} are allowed")
    try:
        return _ENVIRONMENT.from_string(source)
    except MemoryError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {error.message}") from None
    except RecursionError:
        raise TemplateError("its expressions are nested too deeply") from None
    except Exception as error:
        raise TemplateError(f"it does not compile: {error}") from None


def render(template: jinja2.Template, variables: Mapping[str, Any], *, max_bytes: int) -> str:
    """The text. Raises TemplateError with the template's own message, TemplateTooLarge, and MemoryError as it comes."""
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate(variables):
            size += len(piece) if piece.isascii() else len(piece.encode(errors="surrogatepass"))
            if size > max_bytes:
                raise TemplateTooLarge(f"its output is over {max_bytes} bytes")
            pieces.append(piece)
        return "".join(pieces)
    except (MemoryError, TemplateTooLarge):
        raise
    except RecursionError:
        raise TemplateError("it calls itself without end") from None
    except Exception as error:
        # Anything a template does wrong arrives here: it is foreign code, so no exception type is unexpected.
        raise TemplateError(str(error) or type(error).__name__) from None
