"""The starter model with its weights dequantized: the same network without 8-bit activations, whose rounding is what
makes one kernel's last bits grow into another token.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

SKIPPED = {"general.architecture", "general.file_type", "general.quantization_version"}
FILE_TYPES = {"f16": 1, "f32": 0}


def dequantized(source: Path, target: Path, kind: str = "f16") -> Path:
    """Write `source` with matrices of type `kind`. A finished file is used again."""
    if target.exists():
        return target
    reader = GGUFReader(source)
    aside = target.with_suffix(".part")
    writer = GGUFWriter(aside, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key in SKIPPED or key.startswith("GGUF."):
            continue
        sub = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type=sub)
    writer.add_file_type(FILE_TYPES[kind])
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape(tuple(reversed(tensor.shape.tolist())))
        is_matrix = len(tensor.shape) > 1
        writer.add_tensor(tensor.name, values.astype(np.float16 if kind == "f16" and is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    aside.rename(target)
    assert GGMLQuantizationType.F16 in {t.tensor_type for t in GGUFReader(target).tensors} or kind == "f32"
    return target


if __name__ == "__main__":
    dequantized(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
