"""The only ctypes against libllama."""
