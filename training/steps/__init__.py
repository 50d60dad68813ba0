"""The steps of :mod:`training.run`, in its order: schema, fits, bundle, measurement."""
