"""The process that owns a model: scheduling, decoding, sampling, text."""
