"""From a Hugging Face checkpoint to GGUF files."""
