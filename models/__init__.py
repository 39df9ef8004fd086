"""What a model is, on disk and in words: no inference, no Qt."""
