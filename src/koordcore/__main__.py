"""Run the command line: ``python -m koordcore``."""

import sys

from koordcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
