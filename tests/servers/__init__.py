"""Starts real servers for tests: each class starts one program of its own and stops it again."""
