"""The join: what was served and what people did become judged rows. Each file imports from lines below::

job              all steps, resumable: matching of events and records, the published file
rows             the judged rows of a slice of time
pieces           served records as Parquet, a bounded number at a time
events           events of JSON lines, CSV and Parquet; what an action is worth; why an event does not count
replay           logged records ranked again
"""
