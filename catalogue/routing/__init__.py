"""Routes, the snapshot that holds them, and how one is chosen."""
