"""`python -m npgpt.trace`."""

import sys

from npgpt import cli
from npgpt.trace.command import PROG, main

if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
