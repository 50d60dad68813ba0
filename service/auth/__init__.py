"""API keys, and the middleware that asks for them and limits their rate."""
