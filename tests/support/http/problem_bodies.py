"""What every error has in common."""

JSON = {"content-type": "application/json"}


def check(response, status, kind):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["type"] == f"urn:listwright:{kind}"
    assert body["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return body
