"""Records an event for each request, and makes access log, metrics and traces from it."""
