"""Handles what every request and answer of the API has in common."""
