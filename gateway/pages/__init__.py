"""What pages share: the admin's base, static files, formats, mail."""
