"""Usage: records, statistics, rollups, statements, request failures."""
