"""The one table of limits. Every number here is asserted by a test; other modules import it and never restate it.

Sizes are bytes, times are seconds, unless the name says otherwise. Defaults can be raised by a flag or a setting up to
the `_BOUND` beside them.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# HTTP
BODY_BYTES: Final = 32 * MIB
BODY_BYTES_BOUND: Final = 1 * GIB
HEADER_BYTES: Final = 32 * KIB
HEADER_COUNT: Final = 100
JSON_DEPTH: Final = 64
RECEIVE_S: Final = 30.0
KEEP_ALIVE_S: Final = 75.0
CONNECTIONS: Final = 512
WAITING_PER_MODEL: Final = 256

# One request
MESSAGES: Final = 4096
TEXT_BYTES: Final = 16 * MIB
PROMPTS: Final = 128  # in one request to /v1/completions; each is a request of its own to the model
N_CHOICES: Final = 8
N_CHOICES_BOUND: Final = 16
STOP_STRINGS: Final = 32
STOP_BYTES: Final = 512
LOGIT_BIAS_ENTRIES: Final = 1024
TOP_LOGPROBS: Final = 20
MODEL_NAME_BYTES: Final = 256
INPUT_RUN_BYTES: Final = 1 * MIB
TOKENIZE_STACK_BYTES: Final = 512 * MIB

# Chat templates
TEMPLATE_BYTES: Final = 256 * KIB
RENDER_S: Final = 1.0
RENDER_MEMORY_BYTES: Final = 256 * MIB
RENDER_OUTPUT_BYTES: Final = 16 * MIB

# GGUF files
GGUF_KEYS: Final = 4096
GGUF_STRING_BYTES: Final = 10 * MIB
GGUF_KEY_BYTES: Final = 256
GGUF_ARRAY_ELEMENTS: Final = 4 * 1024 * 1024
GGUF_HEADER_BYTES: Final = 256 * MIB  # all before the weights: it is read from front to end
GGUF_TENSORS: Final = 65_536
GGUF_DIMS: Final = 4
GGUF_ELEMENTS: Final = 2**48
GGUF_ALIGNMENT_MIN: Final = 8
GGUF_ALIGNMENT_MAX: Final = 4096
GGUF_BLOCKS_MAX: Final = 512
GGUF_VOCAB_MAX: Final = 2_000_000
GGUF_STRINGS: Final = GGUF_VOCAB_MAX + GGUF_ARRAY_ELEMENTS  # in all arrays together: they are passed over one by one

# Files we write
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
