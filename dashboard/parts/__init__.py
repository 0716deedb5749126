"""Holds what several pages share."""
