"""Lists for the demo, and what a service itself answers."""

import httpx

from support.waiting import PATIENCE_S

NAMES = [*(f"n{number}" for number in range(1, 11)), "c1"]
ROWS = [[0.2 * number - 0.5 * column for column in range(10)] + [f"v{number + 1}"] for number in range(5)]


def answered(service, body):
    """The service's own answer: ids, best first."""
    answer = httpx.post(service.url + "/rerank", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["results"]]


def golden(service, at):
    shown = httpx.get(service.url + "/ui/bundle").json()
    rows = shown["golden"][at]["rows"]
    names = [feature["name"] for feature in shown["features"]]
    return {"feature_names": names, "features": rows, "ids": [f"offer-{n + 1}" for n in range(len(rows))]}
