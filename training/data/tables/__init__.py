"""Tables of candidates: CSV and Parquet files, what their columns mean, and what their queries are split by."""
