"""For services that tests start: LightGBM takes scikit-learn and pandas where it finds them, which takes seconds.

They are hidden, as they are absent from the image.
"""

import sys

sys.modules["sklearn"] = sys.modules["pandas"] = None
