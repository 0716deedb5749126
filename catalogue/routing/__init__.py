"""Routes, the snapshot that holds them, how one is chosen, and the state of those behind them."""
