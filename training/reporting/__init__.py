"""Results of a run or a suite for people: measurements for the report, figures, and pages of one style."""
