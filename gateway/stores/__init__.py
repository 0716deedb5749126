"""Adapts Django to the databases: PostgreSQL's backend, outages, migrations under load."""
