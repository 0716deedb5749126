"""Databases: PostgreSQL's backend, outages, migrations under load."""
