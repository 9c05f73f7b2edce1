"""`python -m npgpt.train`."""

import sys

from npgpt import cli
from npgpt.train.command import PROG, main

if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
