"""`python -m saragossa`: the same as the console script."""

import sys

from saragossa.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
