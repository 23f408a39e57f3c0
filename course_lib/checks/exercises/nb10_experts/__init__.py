"""Lesson 10: mixtures of experts."""
