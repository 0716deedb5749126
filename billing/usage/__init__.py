"""Reads records and sums them up: statistics, rollups, statements, request failures, verification."""
