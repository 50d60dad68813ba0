"""For services that tests start, and for the processes that these start.

LightGBM takes scikit-learn and pandas where it finds them, which takes seconds: they are hidden, as they are absent from
the image. What runs at the lowest priority would wait for ever on a busy machine: it gets its share here, as a batch.
"""

import os
import sys

sys.modules["sklearn"] = sys.modules["pandas"] = None

if hasattr(os, "SCHED_IDLE"):
    _schedule = os.sched_setscheduler
    os.sched_setscheduler = lambda pid, policy, param: _schedule(
        pid, os.SCHED_BATCH if policy == os.SCHED_IDLE else policy, param
    )
