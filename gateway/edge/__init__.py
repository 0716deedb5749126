"""The API's edge."""
