"""Runs the server process."""
