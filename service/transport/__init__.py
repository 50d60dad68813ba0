"""Connections: uvicorn's server, HTTP/1.1 parsing within bounds, the limit, fair accept."""
