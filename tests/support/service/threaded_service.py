"""A service on a port, in a thread of this process: a test reaches into it."""

import logging
import threading
from contextlib import contextmanager

from listwright.ranking import bundle
from listwright.service.app import create_app, server_of
from listwright.service.settings import Settings
from support.waiting import PATIENCE_S

LONG_MS = 600_000


class Served:
    """The application on a port, in a thread of this process."""

    def __init__(self, folder, **settings):
        settings = Settings(bundle=folder, port=0, log_level="critical", **settings)
        started = threading.Event()
        root = logging.getLogger()
        self._logs = root, root.level, root.handlers[:]
        self.app = create_app(settings, models=bundle.load(folder))
        self._server = server_of(self.app, started.set)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        assert started.wait(PATIENCE_S)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def end(self):
        self._server.should_exit = True
        self._thread.join()
        root, root.level, root.handlers = self._logs  # the server made them its own


@contextmanager
def serving(folder, **settings):
    served = Served(folder, **settings)
    try:
        yield served
    finally:
        served.end()
