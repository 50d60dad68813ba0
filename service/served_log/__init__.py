"""The served log: what was answered, written by a thread of its own. Off unless a setting names a folder or a stream.

From top to bottom, each knows only what stands below it:

=============  ======================================================================
``opening``    whether there is a log, and what is wrong with its settings
``writer``     the thread that encodes records into blocks, one for each feature schema, and writes them
``files``      the files that are open, one for each feature schema
``folder``     names, recovery of what a killed worker left, limits of size and age
``stream``     the Redis stream
``conversion`` an answered request as a served record
``buffer``     what waits, bounded
``taken``      what the request path hands over
``drops``      counts and log lines of what is dropped
=============  ======================================================================

``opening`` and ``taken`` alone are imported where there is no log.
"""
