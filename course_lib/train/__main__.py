"""`torchrun ... -m course_lib.train`: see `--help`."""

import sys

from .loop import train
from .options import parse


def main() -> int:
    train(parse(sys.argv[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
