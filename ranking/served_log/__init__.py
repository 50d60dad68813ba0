"""The served log: one record per answered request, in Avro object container files; and the events that refer to it.

Needs ``fastavro``, which the extra ``loop`` of ``listwright`` installs; ``record`` and ``events`` do without. Nothing
that ranks imports this package.
"""
