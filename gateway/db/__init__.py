"""Holds everything about the database: Django's backend and pool, the workers' own sessions, outages, migrations."""
