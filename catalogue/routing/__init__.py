"""Finds and chooses routes."""
