"""Benchmarks: the frame (pairs, medians, confidence) and the work."""
