#!/usr/bin/env python
"""The command line of a checkout."""

from gateway.management.console import main

if __name__ == "__main__":
    main()
