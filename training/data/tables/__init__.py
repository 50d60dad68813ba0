"""Tables of candidates: CSV and Parquet files, the meaning of their columns, and what their queries are split by."""
