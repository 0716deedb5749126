"""Publishes the API as clients read it: its OpenAPI document, and pages with the reference and the documents."""
