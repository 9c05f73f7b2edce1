"""`python -m npgpt.describe`."""

import sys

from npgpt import cli
from npgpt.describe.command import PROG, main

if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
