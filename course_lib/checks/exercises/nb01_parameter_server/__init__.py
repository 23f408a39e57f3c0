"""Notebook 01: parameter servers, and what asynchronous training costs."""
