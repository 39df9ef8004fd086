"""packaging/ is a folder of scripts: its modules are found as start.py finds them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "packaging"))
