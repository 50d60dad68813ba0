"""Commands of the service: ``listwright serve``, ``health`` and ``publish``."""
