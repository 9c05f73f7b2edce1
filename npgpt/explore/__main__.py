"""`python -m npgpt.explore`."""

import sys

from npgpt import cli
from npgpt.explore.command import PROG, main

if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
