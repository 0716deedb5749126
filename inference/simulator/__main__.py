"""`python -m inference.simulator`: the simulated provider without Django, listening within a fraction of a second."""

import argparse
import sys

from inference.simulator.server import add_arguments, serve


def main() -> None:
    """Run until told to stop; exit 1 with one line where the port is taken."""
    parser = argparse.ArgumentParser(prog="python -m inference.simulator", description="Run the simulated provider.")
    add_arguments(parser)
    options = parser.parse_args()
    try:
        serve(options.port, options.dialect, lambda line: print(line, flush=True))
    except OSError as error:
        sys.exit(f"The simulated provider cannot listen: {error}")


main()
