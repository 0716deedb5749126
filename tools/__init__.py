"""Maintainers' tools for the files that ship, as commands of a checkout: not in the package, and no part of serving."""
