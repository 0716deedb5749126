"""The event of each request, and its access log, metrics and traces."""
