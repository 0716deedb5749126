"""Databases: connections, outages, migrations under load."""
