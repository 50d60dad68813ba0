"""The server: reads a sealed bundle and answers ``POST /rerank``. ``python -m service --help`` starts here."""
