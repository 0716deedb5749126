"""Routes, and the choice among them."""
