"""Parts shared by commands: options, errors as one line, progress on a terminal or in a log."""
