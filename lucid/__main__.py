"""`python -m lucid`: the `lucid` command."""

import sys

from lucid.cli import main

if __name__ == "__main__":
    sys.exit(main())
