"""Holds what all pages and the admin share: base classes of the admin, static files, formats of dates, and mail."""
