"""API keys, and the middleware that checks them and limits their rate."""
