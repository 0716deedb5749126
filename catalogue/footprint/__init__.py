"""Energy of tokens and the grid's intensity."""
