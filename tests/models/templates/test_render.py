"""The sandbox: what templates need works, what attacks need does not, and there is one of it."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest

from models import limits
from models.errors import TemplateError, TemplateTooLarge
from models.templates.render import compile_template, render
from models.templates.values import Arguments, revive

ROOT = Path(__file__).resolve().parents[3]
CONSTRUCTS = re.compile(r"\bEnvironment\(|SandboxedEnvironment\(|jinja2\.Template\(|from_string\(")


def run(source: str, **variables: Any) -> str:
    return render(compile_template(source), variables, max_bytes=1000)


@pytest.mark.parametrize(
    ("source", "variables", "expected"),
    [
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", {}, "1"),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", {}, "a\nb\nc"),
        ("{{ {'a': '<é>'} | tojson }}", {}, '{"a": "<é>"}'),
        ("{{ {'b': 1, 'a': [2]} | tojson(indent=2, sort_keys=True) }}", {}, '{\n  "a": [\n    2\n  ],\n  "b": 1\n}'),
        ("{{ ['x'] | map('upper') | tojson }}", {}, '["X"]'),
        ("{{ '\u00e9' | tojson(ensure_ascii=True) }}", {}, '"\\u00e9"'),
        ("{% set n = namespace(n=0) %}{% for i in x %}{% set n.n = n.n + i %}{% endfor %}{{ n.n }}", {"x": [2]}, "2"),
        ("{% generation %}{{ x }}{% endgeneration %}!", {"x": "reply"}, "reply!"),
        ("{{ ('<b>' | safe) + '<c>' }}", {}, "<b><c>"),
        ("{{ missing is defined }}{{ missing }}{% if missing %}x{% endif %}", {}, "False"),
        ("{% for k, v in x.items() %}{{ k ~ v }}{% endfor %}", {"x": {"a": 1}}, "a1"),
    ],
)  # fmt: skip
def test_what_templates_use_works(source: str, variables: dict[str, Any], expected: str) -> None:
    assert run(source, **variables) == expected


def test_strftime_now_is_the_date() -> None:
    day = datetime.datetime.now().astimezone().strftime("%Y")
    assert run("{{ strftime_now('%Y') }}") == day


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('only two roles') }}", "only two roles"),
        ("a\n{% if %}", "line 2"),
        ("{{ lipsum.__globals__['os'].popen('id').read() }}", "unsafe"),
        ("{{ x.__class__.__mro__ }}", "unsafe"),
        ("{{ '{0.__class__.__mro__}'.format(x) }}", "unsafe"),
        ("{{ y.append(1) }}", "unsafe"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "without end"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{% include 'secret' %}", "no loader"),
        ("{{ range(10**9) | list | length }}", "too big"),
        ("{{ x | tojson }}", "cannot be written as JSON"),
    ],
)
def test_what_a_template_does_wrong_is_a_template_error(source: str, says: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(says)):
        run(source, x=run, y=[])


def test_output_is_bounded_in_bytes() -> None:
    assert len(run("{{ 'x' * 1000 }}")) == 1000
    with pytest.raises(TemplateTooLarge, match="1000 bytes"):
        run("{% for i in range(501) %}é{% endfor %}")


def test_source_is_bounded() -> None:
    compile_template("x" * limits.TEMPLATE_BYTES)
    with pytest.raises(TemplateTooLarge, match=str(limits.TEMPLATE_BYTES)):
        compile_template("x" * (limits.TEMPLATE_BYTES + 1))


def test_a_template_is_compiled_once() -> None:
    assert compile_template("{{ 'once' }}") is compile_template("{{ 'once' }}")


@pytest.mark.parametrize(
    "source",
    ["{{ 'call ' + a }}", "call {{ a }}", "{{ 'call ' ~ a }}", "call {{ a | string }}"],
    ids=["plus", "print", "tilde", "string"],
)
def test_call_arguments_print_as_the_clients_own_text(source: str) -> None:
    assert run(source, a=Arguments('{"text":  1}', {"text": 1})) == 'call {"text":  1}'


def test_call_arguments_are_an_object_too() -> None:
    source = "{{ a is mapping }} {{ a.text }} {{ a | tojson }} {% for k, v in a | items %}{{ k }}={{ v }}{% endfor %}"
    assert run(source, a=Arguments('{"text":  1}', {"text": 1})) == 'True 1 {"text": 1} text=1'


def test_arguments_that_are_no_object_stay_text() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"text": "[1", "value": None}}}
    revived = revive({"role": "assistant", "content": "", "tool_calls": [call]})
    assert revived["tool_calls"][0]["function"]["arguments"] == "[1"


def _places(folders: tuple[str, ...]) -> list[str]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in files if CONSTRUCTS.search(path.read_text(encoding="utf-8"))]


def test_one_place_builds_a_jinja_environment() -> None:
    assert _places(("models", "runtime", "app", "quantize", "packaging")) == ["models/templates/render.py"]


def test_control_a_second_environment_would_be_found() -> None:
    """Planted: this file names a second one, jinja2.Template("…"), and the same search finds it."""
    assert "tests/models/templates/test_render.py" in _places(("tests/models/templates",))
