"""The `quantize` command. The converter comes with a later version; until then the command says so and does nothing."""

from __future__ import annotations

import sys

USAGE = 2


def main() -> None:
    sys.stderr.write(
        "quantize: turning Hugging Face checkpoints into GGUF files is not part of this version of Headrace; "
        "it comes with a later one. GGUF files made elsewhere run with `headrace chat FILE.gguf`.\n"
    )
    sys.exit(USAGE)


if __name__ == "__main__":
    main()
