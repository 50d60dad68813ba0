"""``python rank.py URL LISTS``: rank lists by a client that openapi-python-client has made, and print the answers."""

import json
import sys
from pathlib import Path

from generated import AuthenticatedClient
from generated.api.rerank import rerank
from generated.models import Candidate, CandidateFeatures, RerankMatrix, RerankRows

url, path = sys.argv[1:]
golden = json.loads(Path(path).read_text(encoding="utf-8"))
answers = []
with AuthenticatedClient(url, "k" * 20) as client:
    for features in golden["lists"]:
        named = [dict(zip(golden["names"], row, strict=True)) for row in features]
        rows = [Candidate(CandidateFeatures.from_dict(values)) for values in named]
        for body in (
            RerankMatrix(features, feature_names=golden["names"], raw_scores=True),
            RerankRows(rows, raw_scores=True),
        ):
            answer = rerank.sync(client=client, body=body)
            answers.append({"scores": answer.scores, "ranks": answer.ranks})
print(json.dumps(answers))
