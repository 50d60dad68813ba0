"""Objects that pass for those of a class, and have what a test gives them and nothing else."""

from unittest.mock import NonCallableMock


def standing_in(kind, **attributes):
    stand_in = NonCallableMock(spec=kind)
    for name, value in attributes.items():  # not as arguments: a mock keeps a name for itself
        setattr(stand_in, name, value)
    return stand_in
