"""Which bundles are served: loading, the models folder, reload, the routing switch."""
