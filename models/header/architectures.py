"""What is known about model families beyond what their files say. Tables only, after the pinned llama.cpp.

`KNOWN` must be looked at again whenever llama-cpp-python moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# fmt: off
KNOWN: Final = frozenset((
    "afmoe", "apertus", "arcee", "arctic", "arwkv7", "baichuan", "bailingmoe", "bailingmoe2", "bailingmoe3",
    "bert", "bitnet", "bloom", "chameleon", "chatglm", "codeshell", "cogvlm", "cohere2", "cohere2moe",
    "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek2-ocr", "deepseek32", "deepseek4", "dflash",
    "dots1", "dots3note", "dream", "eagle3", "ernie4_5", "ernie4_5-moe", "eurobert", "exaone", "exaone-moe",
    "exaone4", "falcon", "falcon-h1", "gemma", "gemma-embedding", "gemma2", "gemma3", "gemma3n", "gemma4",
    "gemma4-assistant", "glm-dsa", "glm4", "glm4moe", "glm5-next", "gpt-oss", "gpt2", "gptj", "gptneox",
    "granite", "granite_swa", "granitehybrid", "granitemoe", "graniteswitch", "grok", "grovemoe", "hrm_text",
    "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "hy_v3", "hy_v4", "internlm2", "jais", "jais2", "jamba",
    "jina-bert-v2", "jina-bert-v3", "kimi-k3", "kimi-linear", "laguna", "lfm2", "lfm2moe", "llada",
    "llada-moe", "llama", "llama-embed", "llama4", "maincoder", "mamba", "mamba2", "maple", "mellum", "mimo2",
    "minicpm", "minicpm3", "minimax-01", "minimax-m2", "minimax-m3", "mistral3", "mistral4", "modern-bert",
    "mpt", "muse-glimmer", "nanbeige", "nemotron", "nemotron_h", "nemotron_h_moe", "neo-bert", "nomic-bert",
    "nomic-bert-moe", "olmo", "olmo2", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2",
    "phi3", "phimoe", "plamo", "plamo2", "plamo3", "plm", "pockettts", "qwen", "qwen2", "qwen2moe", "qwen2vl",
    "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen3tts", "qwen3vl", "qwen3vlmoe", "qwen4exp",
    "refact", "rnd1", "rwkv6", "rwkv6qwen2", "rwkv7", "seed_oss", "smallthinker", "smollm3", "spark2_5",
    "stablelm", "starcoder", "starcoder2", "step35", "t5", "t5encoder", "talkie", "wavtokenizer-dec", "xverse",
))
# fmt: on

# No attention at all: head_count may be 0 or absent.
RECURRENT: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})

# Attention and recurrent layers; a layer without key-value heads is a recurrent one.
HYBRID_BY_HEADS: Final = frozenset(
    {
        "bailingmoe3",
        "glm5-next",
        "granitehybrid",
        "jamba",
        "kimi-k3",
        "kimi-linear",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "plamo2",
    }
)

# Every n-th layer has attention, the others are recurrent; `full_attention_interval` may say another n.
HYBRID_BY_INTERVAL: Final[dict[str, int]] = {
    "minimax-01": 8,
    "qwen35": 4,
    "qwen35moe": 4,
    "qwen3next": 4,
    "qwen4exp": 4,
}

# Both kinds of memory in every layer.
HYBRID_EVERYWHERE: Final = frozenset({"falcon-h1"})

# Next to attention a memory of its own kind; the header does not tell which layers have it.
HYBRID_OTHER: Final = frozenset({"deepseek4"})

# llama.cpp divides by `ssm.group_count` when it loads these.
DIVIDES_BY_GROUPS: Final = frozenset({"falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe"})

# Their dense models state one expert, which llama.cpp takes for none.
ONE_EXPERT_IS_NONE: Final = frozenset({"hunyuan-dense", "hunyuan_vl"})

# Their files name a sliding window that llama.cpp does not apply.
WINDOW_IGNORED: Final = frozenset({"phi3"})


@dataclass(frozen=True, slots=True)
class WindowPattern:
    """Layers that see only the sliding window: all but one in `period`, the full one last (or first)."""

    period: int
    full_first: bool = False
    window: int | None = None  # used when the file does not name one


# Families whose files may leave the pattern out.
WINDOW_PATTERNS: Final[dict[str, WindowPattern]] = {
    "afmoe": WindowPattern(4),
    "cohere2": WindowPattern(4),
    "cohere2moe": WindowPattern(4, full_first=True),
    "exaone-moe": WindowPattern(4, window=128),
    "exaone4": WindowPattern(4),
    "gemma-embedding": WindowPattern(6),
    "gemma2": WindowPattern(2, window=4096),
    "gemma3": WindowPattern(6),
    "gemma3n": WindowPattern(5),
    "gpt-oss": WindowPattern(2),
    "laguna": WindowPattern(4, full_first=True),
    "llama4": WindowPattern(4, window=8192),
    "mellum": WindowPattern(4),
    "modern-bert": WindowPattern(3, full_first=True),
    "muse-glimmer": WindowPattern(4),
    "olmo2": WindowPattern(4),
    "plamo3": WindowPattern(8),
    "smallthinker": WindowPattern(4, full_first=True),
}
