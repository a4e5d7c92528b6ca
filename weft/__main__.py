"""`python -m weft`: the `weft` command."""

import sys

from weft.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
