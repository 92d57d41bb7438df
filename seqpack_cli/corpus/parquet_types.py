"""Which types of Parquet can be a text, be kept, or be part of a conversation."""

from __future__ import annotations

from typing import Any

KEPT_TYPES = "numbers, booleans, strings or lists of them"
JSON_TYPES = "strings, numbers, booleans, and lists, structs or maps of them"


def make_like(kind: Any) -> Any:
    """Return an empty value of a type, None for one that can be no text."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return {field.name: make_like(field.type) for field in kind}
    if is_list(kind):
        return [make_like(kind.value_type)]
    return "" if is_text(kind) else None


def is_text(kind: Any) -> bool:
    """Return whether values of a type are strings."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_list(kind: Any) -> bool:
    """Return whether values of a type are lists."""
    import pyarrow as pa

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_kept(kind: Any) -> bool:
    """Return whether values of a type can be kept; in lists, structs of such values too."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_kept(kind.value_type)
    if is_list(kind):
        inner = kind.value_type
        fields = [field.type for field in inner] if pa.types.is_struct(inner) else [inner]
        return all(map(is_kept, fields))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_boolean(kind) or is_text(kind))


def is_json(kind: Any) -> bool:
    """Return whether values of a type can be written as JSON."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind) or is_list(kind):
        return is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_json(field.type) for field in kind)
    if pa.types.is_map(kind):
        return is_text(kind.key_type) and is_json(kind.item_type)
    return pa.types.is_null(kind) or is_kept(kind)


def is_number_list(kind: Any, *, takes_booleans: bool = False) -> bool:
    """Return whether values of a type are lists of integers."""
    import pyarrow as pa

    if not is_list(kind):
        return False
    is_boolean = takes_booleans and pa.types.is_boolean(kind.value_type)
    return bool(is_boolean or pa.types.is_integer(kind.value_type))


def is_integer(kind: Any) -> bool:
    """Return whether values of a type are integers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def is_null(kind: Any) -> bool:
    """Return whether all values of a type are null."""
    import pyarrow as pa

    return bool(pa.types.is_null(kind))
