"""``python -m training.fit`` is ``listwright fit``."""

import sys

from listwright.training.commands.fit import main

if __name__ == "__main__":
    sys.exit(main())
