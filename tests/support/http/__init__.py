"""The service as a process: what is sent to it, and what comes back."""
