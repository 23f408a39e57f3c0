"""Notebook 03: replicas that stay equal, buckets that overlap, and what more GPUs are worth."""
