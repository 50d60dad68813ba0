"""Smallest application that answers a request, for the floor: reads its body, returns the requested number of bytes."""

from starlette.types import Receive, Scope, Send


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as an ASGI application."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    size = int(dict(scope["headers"]).get(b"x-answer", b"0"))
    while (await receive()).get("more_body"):
        continue
    head = [(b"content-length", str(size).encode()), (b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b" " * size})
