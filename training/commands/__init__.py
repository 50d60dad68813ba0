"""Commands of the trainer, one module each: options, output and exit code of ``listwright fit`` and the others."""
