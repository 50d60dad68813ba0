"""Classes of Protocol Buffers messages, compiled from tables of their fields.

Each table has a pool of its own: other libraries of the process may have registered messages of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KINDS = {
    kind: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind.upper()}")
    for kind in ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint64")
}


def fields_of(table: str) -> Iterator[tuple[int, str, bool, str]]:
    """Yield number, kind, whether it is repeated, and name of each field of a message.

    Args:
        table: Fields with number, kind, ``*`` if repeated, and name: ``1 bytes name, 2 int64* shape``.
    """
    for field in filter(None, table.split(", ")):
        number, kind, name = field.split()
        yield int(number), kind.rstrip("*"), kind.endswith("*"), name


def compile_messages(
    package: str,
    schema: Mapping[str, str],
    one_of: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    *,
    syntax: str = "proto2",
) -> dict[str, Any]:
    """Return the class of each message.

    Args:
        package: Package of the messages.
        schema: Table of each message, see :func:`fields_of`; a kind is a scalar type or another message.
        one_of: Fields of which one may be set, by message.
        syntax: ``proto2``, or ``proto3``, which checks on parsing that strings are UTF-8.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for message, table in schema.items():
        declared = file.message_type.add(name=message)
        if message in one_of:
            declared.oneof_decl.add(name="value")
        for number, kind, many, name in fields_of(table):
            field = declared.field.add(name=name, number=number, label=3 if many else 1)
            if name in one_of.get(message, ()):
                field.oneof_index = 0
            if kind in _KINDS:
                field.type = _KINDS[kind]
                field.options.packed = many and kind not in ("bytes", "string")
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message}"))
        for message in schema
    }
