"""`python -m weft.apps.llm`: the same program as `python -m weft.llm`."""

import sys

from weft.llm.cli import main

if __name__ == "__main__":
    sys.exit(main())
