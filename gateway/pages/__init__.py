"""The base of the admin, static files, formats, mail."""
