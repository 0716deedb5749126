"""The server process: gunicorn's worker, bounded reading of requests, load shedding, turns, the beat."""
