"""The HTTP service: routes, limits, supervision of workers. Never imports the engine or libllama."""
