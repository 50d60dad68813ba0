"""Servers that hold bundles: moto's S3, and static files over HTTP."""

import logging
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "models"


class S3:
    """A bucket on a real port, which can be down."""

    def __init__(self):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]
        self.environment = {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }
        self.client = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key="wJalrXUtnFEMI",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, key, content):
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def get(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def empty(self):
        for entry in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            self.client.delete_object(Bucket=BUCKET, Key=entry["Key"])

    def stop(self):
        self._server.stop()

    def start(self):
        """Start again on the same port, with what it held."""
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()


class StaticFiles:
    """A folder over HTTP, and what was asked for: paths and the Authorization header."""

    def __init__(self, folder):
        self.requests = []
        self.absent = 404
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self):
                server.requests.append((self.path, self.headers.get("Authorization")))
                super().do_GET()

            def send_error(self, code, *words):
                super().send_error(server.absent if code == 404 else code, *words)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
