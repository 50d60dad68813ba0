"""A service that answers by a script, in a time of its own: nothing here waits."""

import asyncio
import json

import httpx

URL = "http://service"


def answer(length=2, ids=None, **changes):
    """A good answer to a list of that length, or of these ids, which keeps the input order."""
    length = length if ids is None else len(ids)
    results = [
        {
            "index": n,
            "id": None if ids is None else ids[n],
            "rank": n + 1,
            "relevance_score": 1 / length,
            "stage": "second",
            "first_stage_score": 0.5,
            "first_stage_rank": n + 1,
        }
        for n in range(length)
    ]
    return {
        "id": None,
        "model": "shop",
        "version": "7",
        "results": results,
        "scores": [1 / length] * length,
        "ranks": list(range(1, length + 1)),
        "route": {"strategy": "qilcm", "specialist": None, "confidence": None, "decided_by": "bundle"},
        "meta": {"status": "ok", "stage_reached": "second_stage", "reason": None, "timings_ms": {"total": 1.0}},
        **changes,
    }


def good(**changes):
    return answering(answer(**changes))


def answering(body, **headers):
    """200 with a body, under the request's own id unless the headers say otherwise."""

    def answer_request(request):
        return httpx.Response(200, json=body, headers={"x-request-id": request.headers["x-request-id"], **headers})

    return answer_request


def problem(status, kind="too-bad", headers=None, **more):
    body = {"type": f"urn:listwright:{kind}", "title": "-", "status": status, "detail": "no", "request_id": "r-1"}
    media = {"content-type": "application/problem+json"}
    return lambda request: httpx.Response(status, json={**body, "errors": [], **more}, headers={**media, **headers})


def refusing(status, **headers):
    return problem(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def breaking(error):
    def fail(request):
        raise error("broken", request=request)

    return fail


class Server:
    """Answers by the script, its last line for ever; remembers what it was asked, and when."""

    def __init__(self):
        self.script, self.requests, self.moments, self.pauses = [good()], [], [], []
        self.now = 1000.0
        self.takes = 0.0

    def says(self, *script):
        self.script = list(script)

    def __call__(self, request):
        self.requests.append(request)
        self.moments.append(self.now)
        line = self.script[min(len(self.requests), len(self.script)) - 1]
        self.now += self.takes
        return line(request)

    def wait(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    async def wait_async(self, seconds):
        self.wait(seconds)

    def bodies(self):
        return [json.loads(request.content) for request in self.requests]


class Awaited:
    """An AsyncClient that is asked like a Client."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return lambda *values, **options: asyncio.run(getattr(self._client, name)(*values, **options))
