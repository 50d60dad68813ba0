"""The served log: what was answered, written by a thread of its own. Off unless a setting names a folder or a stream.

From top to bottom, each knows only what stands below it:

=============  ======================================================================
``opening``    whether there is a log, and what is wrong with its settings
``writer``     who encodes a record, and the thread that has blocks written
``blocks``     records one behind the other, one block for each feature schema
``files``      the files that are open, one for each feature schema
``folder``     names, recovery of what a killed worker left, limits of size and age
``stream``     the Redis stream
``conversion`` an answered request as a served record
``buffer``     what waits, bounded
``idle``       how idle the thread that answers is
``taken``      what the request path hands over
``drops``      counts and log lines of what is dropped
=============  ======================================================================

``opening`` and ``taken`` alone are imported where there is no log.
"""
