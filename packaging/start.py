"""The first command: `python3 packaging/start.py [test] [--setup-only] ...` (see docs/install.md).

This file only checks which Python runs it, so it stays readable for any old one: no syntax newer than Python 2. The
work is told in start_main.py; everything beside it is standard library only, because nothing is installed yet.
"""

import os
import sys

NEEDED = (3, 11)

if sys.version_info[:2] < NEEDED:
    sys.exit(
        "Headrace needs Python "
        + ".".join(map(str, NEEDED))
        + " or newer; this is Python "
        + ".".join(map(str, sys.version_info[:3]))
        + " ("
        + str(sys.executable)
        + "). Install a newer one and start again with it, for example: python3.12 packaging/start.py"
    )

if __name__ == "__main__":
    # Python leaves the script's folder off sys.path when PYTHONSAFEPATH is set.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from start_main import main

    sys.exit(main(sys.argv[1:]))
