"""``python -m listwright`` is ``listwright``."""

import sys

from listwright.command import main

sys.exit(main())
