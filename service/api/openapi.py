"""The parts of the OpenAPI document that FastAPI leaves out."""

from __future__ import annotations

from typing import Any, Literal

from fastapi.encoders import jsonable_encoder
from fastapi.openapi.models import OpenAPI

from listwright.ranking.served_log.events import Event
from listwright.service import paths, problems
from listwright.service.auth import middleware
from listwright.service.wire import examples
from listwright.service.wire.open_inference import InferEnvelope, InferRequest
from listwright.service.wire.schemas import BODY_ONLY, FORMS, HEADERS, VALUE, Envelope, RerankRequest

_EXAMPLES = {
    paths.RERANK: examples.REQUESTS,
    paths.EXPLAIN: examples.EXPLANATIONS,
    paths.EVENTS: examples.EVENTS,
    **dict.fromkeys(paths.INFER, examples.INFERENCES),
}
JSON = "application/json"
_UNUSED = ("HTTPValidationError", "ValidationError")
_REFERENCE = "#/components/schemas/{model}"


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Complete FastAPI's document with what it leaves out.

    Refusals get their own media type, and bodies that FastAPI does not parse get their schemas: each form of a request
    one of its own, as generators of clients cannot read conditions. Examples stand word for word: FastAPI drops their
    nulls. Words of explanations are made here, so that they cost nothing where they are off.

    Args:
        document: Document that FastAPI made; it is changed in place.
    """
    from listwright.service.wire.explain_schemas import (  # noqa: PLC0415 - see above
        ExplainEnvelope,
        ExplainRequest,
        ExplainResponse,
    )

    envelopes = {paths.RERANK: Envelope, paths.EXPLAIN: ExplainEnvelope, **dict.fromkeys(paths.INFER, InferEnvelope)}
    for path, envelope in envelopes.items():
        operation = document["paths"][path]["post"]
        operation["parameters"] = [*operation.get("parameters", []), *_parameters(envelope)]
    for path, operation in ((path, o) for path, operations in document["paths"].items() for o in operations.values()):
        middleware.document(path, operation)
        if "HTTPValidationError" in str(operation["responses"].get("422")):  # a name in a path is never invalid
            del operation["responses"]["422"]
        for status, response in operation["responses"].items():
            if status >= "4":
                response["content"] = {problems.MEDIA_TYPE: next(iter(response["content"].values()))}
    schemas = document["components"]["schemas"]
    sent = (RerankRequest, InferRequest, Event, ExplainRequest)
    for model in (*sent, ExplainResponse):
        mode: Literal["validation", "serialization"] = "serialization" if model is ExplainResponse else "validation"
        schema = model.model_json_schema(ref_template=_REFERENCE, mode=mode)
        schemas = {**schema.pop("$defs"), model.__name__: schema, **schemas}
    for model in (RerankRequest, ExplainRequest):
        schemas |= _split_request(model.__name__, schemas[model.__name__])
    components = {name: _simplify(schema) for name, schema in schemas.items() if name not in _UNUSED}
    document["paths"] = _simplify(document["paths"])
    document["components"]["securitySchemes"] |= middleware.SCHEME
    document["components"]["schemas"] = dict(sorted({**components, "Value": VALUE}.items()))
    document = jsonable_encoder(OpenAPI(**document), by_alias=True, exclude_none=True)
    for path, bodies in _EXAMPLES.items():
        document["paths"][path]["post"]["requestBody"]["content"][JSON]["examples"] = bodies
    return document


def _split_request(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a request as one of its forms, and the schema of each form."""
    of_some = {member for members in FORMS.values() for member in members}
    forms = {}
    for form, members in FORMS.items():
        properties = {key: value for key, value in schema["properties"].items() if key in members or key not in of_some}
        first = properties[members[0]]
        properties[members[0]] = {**first["anyOf"][0], **first}
        del properties[members[0]]["anyOf"]
        description = f"{schema['description']} This form has ``{members[0]}``."
        form_name = name.replace("Request", form)
        forms[form_name] = {**schema, "description": description, "properties": properties, "required": [members[0]]}
    references = [{"$ref": _REFERENCE.format(model=form)} for form in forms]
    return {name: {"description": schema["description"], "oneOf": references}, **forms}


def _simplify(node: Any) -> Any:
    """Return a part of the document for generators: one type of values, numbers as double, no titles."""
    if node == VALUE:
        return {"$ref": _REFERENCE.format(model="Value")}
    if isinstance(node, list):
        return [_simplify(item) for item in node]
    if not isinstance(node, dict):
        return node
    members = {key: _simplify(value) for key, value in node.items() if key != "title" or isinstance(value, dict)}
    return {**members, "format": "double"} if node.get("type") == "number" else members


def _parameters(model: type[Envelope]) -> list[dict[str, Any]]:
    """Return the parameters for options beside a body: in the query string, without null, and some in a header."""
    # paths that name the bundle have no parameter for it, which would have to agree with the path
    omitted = BODY_ONLY if model is not InferEnvelope else BODY_ONLY | {"model", "version"}
    parameters = []
    for name, field in model.model_json_schema()["properties"].items():
        schema = {key: value for key, value in field.items() if key not in ("anyOf", "default", "description", "title")}
        values = [option for option in field.get("anyOf", []) if option != {"type": "null"}]
        schema |= values[0] if len(values) == 1 else {"anyOf": values} if values else {}
        by_type = {"content": {JSON: {"schema": schema}}} if schema.get("type") == "object" else {"schema": schema}
        common = {"required": False, **by_type, "description": field["description"]}
        if name not in omitted:
            parameters.append({"name": name, "in": "query", **common})
        if name in HEADERS:
            parameters.append({"name": HEADERS[name], "in": "header", **common})
    return parameters
