"""The render child: reads jobs from stdin and writes answers to stdout until stdin closes.

It belongs to one worker. A job that meets the memory limit, or the processor time limit, costs this process and nothing
else: the worker starts another.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

from models import limits
from runtime.render import cage, protocol
from runtime.render.job import answer
from runtime.render.protocol import Answer, RenderJob

# Whatever a template touches for the first time is loaded by this one, before the limits stand.
_WARM_UP = RenderJob(
    "{% set ns = namespace(x=1) %}{% for m in messages %}{{ m | tojson(indent=2) }}{{ strftime_now('%B') }}"
    "{% generation %}{{ m.content | trim }}{% endgeneration %}{% break %}{% endfor %}{{ a | items | list }}",
    [{"role": "user", "content": "é"}],
    {"a": {"b": [1.5, None]}},
    cuts=(1,),
)


def serve(jobs: BinaryIO, answers: BinaryIO, *, render_s: float = limits.RENDER_S) -> None:
    """Answer jobs until the pipe closes. Ends early, after its answer, on a job that used up the memory."""
    protocol.write(answers, Answer(ready=True))
    while (job := protocol.read_job(jobs)) is not None:
        cage.start_timer(render_s)
        reply = answer(job)
        cage.stop_timer()
        protocol.write(answers, reply)
        if reply.refused is not None and reply.refused.limit == "memory":
            return


def main() -> None:
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    # Nothing but frames may reach the pipe.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    answer(_WARM_UP)
    cage.confine(limits.RENDER_MEMORY_BYTES)
    serve(jobs, answers)


if __name__ == "__main__":
    main()
