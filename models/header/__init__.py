"""The parts of the GGUF header reader. Use it through models.gguf; nothing outside models imports from here."""
