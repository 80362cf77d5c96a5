# SPDX-License-Identifier: Apache-2.0
"""Wire form of objects, and the envelope of payloads."""

from typing import Any
from typing import NamedTuple

from cellsched.objects import base

_NAME, _NAMESPACE, _VERSION, _DATA = (
    f'{base.Object.OBJ_SERIAL_NAMESPACE}.{key}'
    for key in ('name', 'namespace', 'version', 'data'))


class Form(NamedTuple):
    """A kind of versioned payload: its name, its version and its fields.

    The version is Nova's: consumers derive the fields from it.
    """

    name: str
    version: str
    fields: tuple[str, ...] = ()

    def fill(self, source: Any, **more: Any) -> dict[str, Any] | None:
        """Return the payload of an object in wire form; None without one.

        :param more: fields that are not copied from the object
        """
        known = fields_of(source)
        if known is None:
            return None
        fields = {name: plain(known.get(name)) for name in self.fields}
        return wrap(self.name, self.version, fields | more)


def wrap(name: str, version: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope of a payload."""
    return {
        _NAME: name,
        _NAMESPACE: base.Object.OBJ_PROJECT_NAMESPACE,
        _VERSION: version,
        _DATA: fields,
    }


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object in wire form, or None.

    A dict without an envelope counts as its own fields.
    """
    if isinstance(value, base.Object):
        value = value.obj_to_primitive()
    if not isinstance(value, dict):
        return None
    return value.get(_DATA, value)


def members_of(value: Any) -> list[Any]:
    """Return the members of a list, or of an object that is a list."""
    listed = fields_of(value)
    if listed is not None:
        value = listed.get('objects')
    return list(value or ())


def plain(value: Any) -> Any:
    """Return the value without envelopes, on all levels."""
    if isinstance(value, base.Object):
        value = value.obj_to_primitive()
    if isinstance(value, dict):
        if _DATA not in value:
            return {key: plain(member) for key, member in value.items()}
        fields = value[_DATA]
        if isinstance(fields, dict) and set(fields) == {'objects'}:
            fields = fields['objects']
        return plain(fields)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(member) for member in value]
    return value


def legacy_time(text: Any) -> Any:
    """Return a time in the form of unversioned notifications."""
    if isinstance(text, str) and text.endswith('Z') and '.' not in text:
        return f'{text[:-1]}.000000'
    return text
