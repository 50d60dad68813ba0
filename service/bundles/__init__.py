"""The served bundles: loading, the models folder, reload, the routing switch."""
