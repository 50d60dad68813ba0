"""The deprecated name of ``served_log``, which scripts for older versions import."""

import sys
import warnings

from listwright.ranking.served_log import encoding, events, files, record

warnings.warn("listwright.ranking.served is now listwright.ranking.served_log", DeprecationWarning, stacklevel=2)
for _module in (encoding, events, files, record):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
