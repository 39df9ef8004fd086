"""Requests, frames, configuration, and the processes that serve them. Importing it loads nothing."""
