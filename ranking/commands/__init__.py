"""Commands that need nothing but the kernel: ``listwright verify`` and ``listwright served``."""
