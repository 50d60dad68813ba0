"""SVMrank / LETOR text: its two parsers, the files of a set, and how publishers lay them out."""
