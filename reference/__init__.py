"""The API as clients read it: its OpenAPI document, and pages that show it and a guide."""
