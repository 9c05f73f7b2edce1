"""`python -m npgpt.vectors`."""

import sys

from npgpt import cli
from npgpt.vectors.command import PROG, main

if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
