"""What clients read about the API: its OpenAPI document, made from the code, and pages that show it and a guide."""
