"""What a run or a suite shows to people: measurements for the report, figures, and pages of one style."""
