"""The server: reads a sealed bundle and answers ``POST /rerank``. ``docs/architecture.md`` has its modules."""
