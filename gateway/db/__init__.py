"""Everything about the database: Django's backend and its pool, the workers' own sessions, outages, migrations."""
