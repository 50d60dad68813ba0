"""The served log: one record per answered request, in Avro object container files; and the events that refer to it.

=============  ======================================================================
``command``    ``listwright served``: list files, forget a person
``files``      which blocks of a file are whole, their records, a writer of whole files
``encoding``   the Avro schema; records and blocks as bytes
``record``     what a record holds
``events``     what a person did with a candidate, in the words of User Behavior Insights
=============  ======================================================================

Needs ``fastavro``, which the extra ``loop`` of ``listwright`` installs; ``record`` and ``events`` do without. Nothing
that ranks imports this package.
"""
