"""Serves all pages: the base of the admin, static files, formats, mail."""
