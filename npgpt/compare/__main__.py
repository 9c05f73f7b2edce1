"""`python -m npgpt.compare`."""

import sys

from npgpt import cli
from npgpt.compare.command import PROG, main

if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
