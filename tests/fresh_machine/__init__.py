"""Runs the lines of docs/deployment.md on a machine with only Debian's packages, in namespaces of Linux."""
