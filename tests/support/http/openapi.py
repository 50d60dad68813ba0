"""The operations of ``openapi.yaml``, and its document cut to the bundle of ``tests/contract``."""

import copy

import schemathesis

from listwright.service.paths import INFER
from listwright.service.wire.schemas import FORMS

PROBES = ("/livez", "/readyz", "/info", "/metrics", "/v2", "/v2/health/live", "/v2/health/ready")
MODELS = [
    prefix + suffix
    for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
    for suffix in ("", "/ready")
]
RANKINGS = ("/rerank", *INFER)
ADMIN = ("/admin/reload", "/admin/rollback")
EVENTS, EXPLAIN = "/ubi/events", "/explain"
OPERATIONS = [("POST", path) for path in (*RANKINGS, *ADMIN, EVENTS, EXPLAIN)] + [
    ("GET", path) for path in (*PROBES, *MODELS)
]
REFUSALS = ("400", "401", "403", "404", "405", "406", "408", "409", "413", "415", "422", "429", "5xx")
CONFIG = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": list(REFUSALS)}}})
"""A wrong body may be too large first (413): it is refused before it is looked at."""
VALID, INVALID = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CODES = {"type": "integer", "minimum": 0, "maximum": 3}
WEIGHT = {"type": "number", "minimum": 0, "maximum": 1e6}
NUMBER = {"type": ["number", "null"], "minimum": -1e30, "maximum": 1e30}
CATEGORY = {"type": ["string", "number", "null"]}
ONE_QUESTION = {
    "oneOf": [
        {
            "required": ["candidate"],
            "properties": {"candidate": {"enum": [0, 1, 2]}, "explain_top_n": {"type": "null"}},
        },
        {
            "required": ["explain_top_n"],
            "properties": {
                "explain_top_n": {"type": "integer", "minimum": 1, "maximum": 5},
                "candidate": {"type": "null"},
                "against": {"type": "null"},
            },
        },
    ]
}
KINDS = {"price": NUMBER, "stars": NUMBER, "bm25": NUMBER, "carrier": CATEGORY}


def array(item, least, most):
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


def tuple_of(*items):
    return {"type": "array", "prefixItems": list(items), "items": False, "minItems": len(items), "maxItems": len(items)}


def object_of(required, **properties):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def or_null(schema):
    return {"anyOf": [schema, {"type": "null"}]}


def tensors(length):
    """Inputs of so many candidates, whose sizes no schema can hold together."""
    row = tuple_of(NUMBER, NUMBER, NUMBER, CODES)
    flat = tuple_of(*[NUMBER, NUMBER, NUMBER, CODES] * length)
    named = {
        "name": {"const": "features"},
        "datatype": {"enum": ["FP32", "FP64", "FP16", "BF16"]},
        "shape": {"const": [length, 4]},
    }
    values = {"data": {"anyOf": [flat, array(row, length, length)]}}
    features = object_of([*named, "data"], **named, **values)
    named = {"name": {"const": "ids"}, "datatype": {"const": "BYTES"}, "shape": {"const": [length]}}
    text = {**array({"type": "string", "maxLength": 512}, length, length), "uniqueItems": True}
    ids = object_of([*named, "data"], **named, data=text)
    return [tuple_of(features), tuple_of(features, ids), tuple_of(ids, features)]


def with_arrays(document):
    """The document with what its words accept beside its schemas: features of a candidate as an array."""
    document = copy.deepcopy(document)
    features = document["components"]["schemas"]["Candidate"]["properties"]["features"]
    array_or_object = {"anyOf": [features, {"type": "array", "items": {"$ref": "#/components/schemas/Value"}}]}
    document["components"]["schemas"]["Candidate"]["properties"]["features"] = array_or_object
    return document


RULES = {
    "anyOf": [
        object_of(
            ["action", "where"],
            action={"const": "exclude"},
            where=object_of(
                [],
                price={"type": "number", "minimum": -1e30, "maximum": 1e30},
                stars=object_of(["min"], min={"type": "number", "maximum": 1e30, "minimum": 0}),
            )
            | {"minProperties": 1},
            name={"enum": ["a", None]},
        ),
        object_of(
            ["action", "where", "factor"],
            action={"enum": ["boost", "bury"]},
            where=object_of(["carrier"], carrier={"enum": ["A5", ["A5", "C7"]]}),
            factor={"type": "number", "minimum": 1, "maximum": 1e6},
        ),
        object_of(
            ["action", "by", "most"],
            action={"const": "cap"},
            by={"enum": list(KINDS)},
            most={"type": "integer", "minimum": 1, "maximum": 1000},
            first={"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
        ),
    ]
}


def for_this_bundle(document, *, has_goals=False):
    """The document with what it cannot say in general: the served names, kinds and width, and what it says in words.

    Bundles that have goals have probabilities. Without it every generated list would be another schema's, and no answer but 409 would be seen. Bytes behind a JSON
    object cannot be generated: they have tests of their own.
    """
    document = copy.deepcopy(document)
    schemas, paths = document["components"]["schemas"], document["paths"]
    row, named = tuple_of(*KINDS.values()), object_of(["price", "stars"], **KINDS)
    context = {"type": "object", "properties": {name: KINDS[name] for name in ("stars", "carrier")}, "maxProperties": 9}
    choices: dict[str, object] = {"expect_candidates": {"type": "null"}}  # it must be the length of the list
    choices |= {"strategy": {"enum": ["auto", "srm"]}, "specialist": {"enum": [None, 0, 1, 2]}}
    choices["context"] = or_null({**context, "additionalProperties": CATEGORY})
    weights = {"type": "object", "properties": {"margin": WEIGHT}, "additionalProperties": False}
    choices["weights"] = or_null(weights) if has_goals else {"type": "null"}
    if not has_goals:
        choices |= {"probabilities": {"enum": [False]}, "min_probability": {"type": "null"}}
    # ids are unique, which no schema says
    schemas["Candidate"]["properties"] = {"features": {"anyOf": [row, named]}}
    bundles = {"model": {"enum": ["shop", None]}, "version": {"enum": ["7", None]}}
    for endpoint in ("Rerank", "Explain"):
        schemas[f"{endpoint}Rows"]["properties"]["candidates"]["maxItems"] = 50
        fields = schemas[f"{endpoint}Matrix"]["properties"]
        fields |= {"features": array(row, 1, 50), "feature_names": {"type": "null"}, "ids": {"type": "null"}}
        lists = [{name: array(KINDS[name], length, length) for name in KINDS} for length in (1, 2, 5)]
        columns = {"anyOf": [object_of(["price", "stars"], **named) for named in lists]}
        schemas[f"{endpoint}Columns"]["properties"] |= {"columns": columns, "ids": {"type": "null"}}
        for form in FORMS:
            schemas[f"{endpoint}{form}"]["properties"] |= choices | bundles | {"rules": or_null(array(RULES, 0, 3))}
    for form in FORMS:
        schemas[f"Explain{form}"] |= ONE_QUESTION
    schemas["InferParameters"]["properties"] |= choices
    fields = schemas["InferRequest"]["properties"]
    fields["inputs"] = {"anyOf": [inputs for length in (1, 2, 5) for inputs in tensors(length)]}
    fields |= {"model_name": {"enum": ["shop", None]}, "model_version": {"enum": ["7", None]}}
    name = {"enum": ["scores", "ranks", "first_stage_scores", "order", *(["probabilities"] if has_goals else [])]}
    schemas["RequestedOutput"]["properties"]["name"] = name
    by_name = {**array(object_of(["name"], name=name), 0, 4), "uniqueItems": True}
    one = array({"$ref": "#/components/schemas/RequestedOutput"}, 1, 1)
    fields["outputs"] = {"anyOf": [by_name, one, {"type": "null"}]}
    known = {"name": ["shop"], "model": ["shop"], "version": ["7"]}
    for path, operation in ((path, o) for path, found in paths.items() for o in found.values()):
        content = operation.get("requestBody", {}).get("content", {})
        for media in list(content):
            if media == "application/json":
                del content[media]["examples"]
            else:
                del content[media]
        parameters = operation.get("parameters", [])
        if path in (*RANKINGS, EXPLAIN):  # they would contradict the body; and the length of a head that bytes follow
            parameters = [parameter for parameter in parameters if parameter["in"] == "path"]
        for parameter in parameters:
            parameter["schema"] = {"type": "string", "enum": known[parameter["name"]]}
        operation["parameters"] = parameters
    return document
