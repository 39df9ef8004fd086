"""The render child under attack: a hostile template costs one request, never the worker, and the next chat renders."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import limits
from runtime import commands
from runtime.errors import TemplateFailed
from runtime.render import cage, protocol
from runtime.render.protocol import RenderJob
from runtime.worker.renderer import Renderer, RenderLimits, TemplateRaised

ORDINARY = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CHAT = [{"role": "user", "content": "hi"}]

# What each does on a machine without limits: run for hours, take all memory, or reach out of the sandbox.
HOSTILE = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "silent loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "mul": "{{ 'a' * 20000000000 }}",
    "pow": "{{ 9**(9**9) }}",
    "fmt": "{{ '%02000000000d' % 1 }}",
    "recur": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "nest": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "ssti": "{{ lipsum.__globals__['os'].popen('touch ' ~ messages[0].content).read() }}",
    "big": "{% set ns = namespace(s='a') %}{% for i in range(34) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "output": "{% for i in range(9999) %}{{ messages[0].content * 9999 }}{% endfor %}",
    "source": "x" * (limits.TEMPLATE_BYTES + 1),
}
# These the sandbox answers with nothing at all.
HARMLESS = {
    "attr": "{{ ''|attr('__class__') }}",
    "method": "{{ ''.join.__class__ }}",
    "left pow": "{{ (9**9**9) | string | length }}",
}


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    owner = Renderer()
    yield owner
    owner.close()


def renders_ordinarily(renderer: Renderer) -> bool:
    return renderer.render(RenderJob(ORDINARY, CHAT)).text == "user: hi\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_and_the_next_chat_renders(renderer: Renderer, name: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    with pytest.raises(TemplateFailed) as refused:
        renderer.render(RenderJob(HOSTILE[name], [{"role": "user", "content": str(canary)}]))
    assert "--template chatml|" in str(refused.value), "the error must say the way out"
    assert not canary.exists()
    assert renders_ordinarily(renderer)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_answer_is_short(renderer: Renderer, name: str) -> None:
    assert len(renderer.render(RenderJob(HARMLESS[name], CHAT)).text) < 5
    assert renders_ordinarily(renderer)


@pytest.mark.skipif(not cage.has_processor_timer(), reason="no processor timer on this platform")
def test_the_processor_time_limit_is_named(renderer: Renderer) -> None:
    with pytest.raises(TemplateFailed, match="more than 1 s of processor time"):
        renderer.render(RenderJob(HOSTILE["silent loops"], CHAT))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the address space")
def test_the_memory_limit_is_named_and_ends_the_child(renderer: Renderer) -> None:
    renders_ordinarily(renderer)
    started = renderer.n_started
    with pytest.raises(TemplateFailed, match="256 MiB of memory"):
        renderer.render(RenderJob(HOSTILE["big"], CHAT))
    assert renders_ordinarily(renderer)
    assert renderer.n_started == started + 1


def test_the_output_limit_is_named(renderer: Renderer) -> None:
    with pytest.raises(TemplateFailed, match=f"output is over {limits.RENDER_OUTPUT_BYTES} bytes"):
        renderer.render(RenderJob(HOSTILE["output"], CHAT))


def test_a_template_that_raises_costs_no_child(renderer: Renderer) -> None:
    renders_ordinarily(renderer)
    started = renderer.n_started
    with pytest.raises(TemplateRaised, match="only two roles"):
        renderer.render(RenderJob("{{ raise_exception('only two roles.') }}", CHAT))
    assert renders_ordinarily(renderer)
    assert renderer.n_started == started


def test_the_wall_clock_ends_a_child_that_the_processor_clock_does_not(tmp_path: Path) -> None:
    """A stopped or waiting child uses no processor time."""
    silent = Renderer(limits=RenderLimits(start_s=0.2), argv=[sys.executable, "-c", "input(); input()"])
    with pytest.raises(TemplateFailed, match=r"took more than 0\.2 s"):
        silent.render(RenderJob(ORDINARY, CHAT))
    silent.close()


def test_a_child_that_cannot_start_says_so() -> None:
    broken = Renderer(argv=[sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(TemplateFailed, match="did not start: its process ended with 3"):
        broken.render(RenderJob(ORDINARY, CHAT))
    broken.close()


def test_a_child_killed_between_chats_is_replaced(renderer: Renderer) -> None:
    renders_ordinarily(renderer)
    assert renderer._child is not None
    renderer._child.kill()
    renderer._child.wait()
    assert renders_ordinarily(renderer)


def test_close_ends_the_child_and_may_be_called_twice() -> None:
    owner = Renderer()
    assert renders_ordinarily(owner)
    child = owner._child
    owner.close()
    owner.close()
    assert child is not None
    assert child.poll() is not None


def test_the_child_ends_when_its_pipe_closes() -> None:
    child = subprocess.Popen(commands.argv("render"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    answer = protocol.read_answer(child.stdout, max_bytes=1000)
    assert answer is not None
    assert answer.ready
    child.stdin.close()
    assert child.wait(timeout=30) == 0
    child.stdout.close()


# The same attacks without the limits: what the checks above rest on.

_WITHOUT_TIMER = """
from runtime.render import cage, main
cage.start_timer = lambda seconds: None
main.main()
"""
_WITHOUT_MEMORY_LIMIT = """
from runtime.render import cage, main
cage.confine = lambda memory_bytes: {}
main.main()
"""


@pytest.mark.skipif(not cage.has_processor_timer(), reason="no processor timer on this platform")
def test_control_without_the_timer_the_check_of_the_processor_limit_fails() -> None:
    """Planted: a child that never starts its timer. Only the wall clock is left, and the error says that instead."""
    unlimited = Renderer(limits=RenderLimits(render_s=1.5), argv=[sys.executable, "-P", "-c", _WITHOUT_TIMER])
    with pytest.raises(TemplateFailed) as refused:
        unlimited.render(RenderJob(HOSTILE["silent loops"], CHAT))
    assert "processor time" not in str(refused.value)
    assert "took more than 1.5 s" in str(refused.value)
    unlimited.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the address space")
def test_control_without_the_memory_limit_the_check_of_it_fails() -> None:
    """Planted: a child that does not confine itself. It makes a text of 300 MiB without complaint."""
    large = "{{ ('a' * 314572800) | length }}"
    limited = Renderer()
    with pytest.raises(TemplateFailed, match="256 MiB of memory"):
        limited.render(RenderJob(large, CHAT))
    limited.close()
    unlimited = Renderer(argv=[sys.executable, "-P", "-c", _WITHOUT_MEMORY_LIMIT])
    assert unlimited.render(RenderJob(large, CHAT)).text == "314572800"
    unlimited.close()
