"""The deprecated name of ``served_log``, which scripts for older versions import."""

import sys
import warnings

from listwright.ranking.served_log import files, record

warnings.warn("listwright.ranking.served is now listwright.ranking.served_log", DeprecationWarning, stacklevel=2)
sys.modules[f"{__name__}.files"], sys.modules[f"{__name__}.record"] = files, record
