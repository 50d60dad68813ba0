"""The join: what was served and what people did become judged rows. Each file imports from lines below::

job              all steps, resumable; the published file
rows             the judged rows of a slice of time
matching         events and the records that they belong to
pieces           served records as Parquet, a bounded number at a time
event_files      events of JSON lines, CSV and Parquet
labels, causes   what an action is worth; why an event does not count
live_files       files that a service finishes or removes meanwhile
replay           logged records ranked again
"""
