"""What goes past the libraries, for speed: HTTP in and out, PostgreSQL, Redis."""
