"""Notebook 04: layers split between ranks, what they send, and what they keep."""
