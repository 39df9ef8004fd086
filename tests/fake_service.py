"""A service program with nothing but a supervisor: says its worker's process id once that is ready, then waits.

fake_service.py COMMAND… starts workers with that command.
"""

from __future__ import annotations

import asyncio
import sys

from runtime.config import EngineOptions, ServiceOptions
from runtime.service.supervisor import Supervisor


async def main(command: list[str]) -> None:
    supervisor = Supervisor(EngineOptions("no model"), ServiceOptions("fake", "no model"), command=command)
    await supervisor.start()
    assert await supervisor.settled() == "ready"
    print(supervisor.worker_pid, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
