"""The API's edge: reading and checking requests, limits by address, errors and headers of every response."""
