"""The steps of :mod:`listwright.training.run`, in its order: schema, fits, bundle, measurement."""
