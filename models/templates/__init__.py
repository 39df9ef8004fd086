"""Chat templates: the sandboxed render, the built-in templates, and the shapes of a chat a template may insist on."""
