"""Holds the maintainers' commands for the files that ship; they are in a checkout only, not in the package."""
