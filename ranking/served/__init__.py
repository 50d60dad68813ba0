"""The served log: one record per answered request, in Avro object container files.

Each file imports from its own line or from lines below::

    command         listwright served
    forgetting      files without the records of one unit
    files           records of files, whole or cut off; a writer of whole files
    encoding        records and blocks as bytes
    record          what a record holds
    units           the salted hash of a unit
    framing         where the blocks of a container file begin and end
    schema          the Avro schema and its version

Needs ``fastavro``, which the extra ``loop`` of ``listwright`` installs. Nothing that ranks imports this package.
"""
