"""The child process that renders chat templates under limits."""
