"""The log of events: ``POST /ubi/events`` answers once an event is with the operating system.

Nothing imports this package unless ``LISTWRIGHT_EVENTS_LOG`` is set. Each file imports from lines below::

    log      the queue, and the one thread that validates and writes
    files    the files: appended to, rolled, bounded
    lines    a body as lines of a file
"""
