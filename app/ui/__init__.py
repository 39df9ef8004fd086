"""The widgets. Each is given its state object, connects to its signals and draws."""
