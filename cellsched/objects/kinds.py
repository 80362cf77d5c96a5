# SPDX-License-Identifier: Apache-2.0
"""The short ways of fields, for values of the very type that is expected.

A field of oslo.versionedobjects makes what it holds of whatever it gets, piece
by piece, which takes ten times as long as to see that nothing has to be made.
For the fields that objects here have there is a kind that sees it. Whatever is
not of the exact type is left to the field, which makes it or refuses it.
"""

import datetime
import re
from typing import Any
from typing import Final

from oslo_versionedobjects import base
from oslo_versionedobjects import fields

#: In place of a value: the field has to see to it.
OTHER: Final = object()

#: What travels as it is.
PLAIN: Final = frozenset((bool, float, int, str, type(None)))

#: What the attributes begin with in which objects keep their values.
KEPT_AS: Final = 'value_of_'

_TEXT = frozenset((str,))
_ENVELOPE = frozenset((dict,))
_DOCUMENT = frozenset((bool, dict, float, int, list, str))

#: The one form in which times are written here.
_TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', re.ASCII)


class Raw(fields.FieldType):
    """Anything that JSON can say, kept as it came.

    For what we pass on and do not read, such as objects of Nova's that this
    project does not know.
    """

    @staticmethod
    def coerce(obj: Any, attr: str, value: Any) -> Any:
        return value


class RawField(fields.AutoTypedField):
    """A field of :class:`Raw`."""

    AUTO_TYPE = Raw()


class SetOfStringsField(fields.AutoTypedField):
    """A set of texts, which older releases of the library have no field of."""

    AUTO_TYPE = fields.Set(fields.String())


class Kind:
    """The short ways of one field.

    ``kept_as`` is the attribute in which an object keeps its value. Values of
    a type in ``plain`` are kept, and travel, as they are.
    """

    types: frozenset[Any] = frozenset()

    def __init__(self, name: str, field: Any) -> None:
        self.name = name
        self.kept_as = KEPT_AS + name
        self.field = field
        self.plain: frozenset[type] = self.types | (
            {type(None)} if field.nullable else set())

    def read(self, obj: Any, value: Any) -> Any:
        """Return what is kept of what came, or :data:`OTHER`."""
        return self.take(value)

    def take(self, value: Any) -> Any:
        """Return what is kept of what is given, or :data:`OTHER`."""
        return OTHER

    def write(self, obj: Any, value: Any) -> Any:
        """Return what travels of what is kept, which is not plain."""
        return self.field.to_primitive(obj, self.name, value)


class Boolean(Kind):

    types = frozenset((bool,))


class Float(Kind):

    types = frozenset((float,))


class Integer(Kind):

    types = frozenset((int,))


class Text(Kind):

    types = _TEXT


class Document(Kind):
    """Anything that JSON can say."""

    types = _DOCUMENT

    def write(self, obj: Any, value: Any) -> Any:
        return value


class Texts(Kind):
    """A list of texts."""

    def take(self, value: Any) -> Any:
        return value.copy() if _are_texts(value) else OTHER

    def write(self, obj: Any, value: Any) -> Any:
        return list(value)


class TextByName(Kind):

    def take(self, value: Any) -> Any:
        if (type(value) is dict and _TEXT.issuperset(map(type, value))
                and _TEXT.issuperset(map(type, value.values()))):
            return value.copy()
        return OTHER

    def write(self, obj: Any, value: Any) -> Any:
        return dict(value)


class TextsByName(Kind):

    def take(self, value: Any) -> Any:
        if (type(value) is dict and _TEXT.issuperset(map(type, value))
                and all(map(_are_texts, value.values()))):
            return {name: texts.copy() for name, texts in value.items()}
        return OTHER

    def write(self, obj: Any, value: Any) -> Any:
        return {name: list(texts) for name, texts in value.items()}


class Time(Kind):
    """A time in UTC that does not say so."""

    def read(self, obj: Any, value: Any) -> Any:
        if type(value) is not str or not _TIME.fullmatch(value):
            return OTHER
        try:
            return datetime.datetime.fromisoformat(value[:-1])
        except ValueError:
            # There is no such time. The field has words for it.
            return OTHER

    def take(self, value: Any) -> Any:
        return value if _is_naive(value) else OTHER

    def write(self, obj: Any, value: Any) -> Any:
        if _is_naive(value):
            return value.isoformat(timespec='seconds') + 'Z'
        return super().write(obj, value)


class ObjectKind(Kind):

    def read(self, obj: Any, value: Any) -> Any:
        if type(value) is not dict:
            return OTHER
        made = obj.obj_from_primitive(value, obj.obj_context)
        if made.obj_name() == self.field.objname:
            return made
        # One of another name is refused, and not read a second time.
        return self.field.coerce(obj, self.name, made)

    def take(self, value: Any) -> Any:
        if (isinstance(value, base.VersionedObject)
                and value.obj_name() == self.field.objname):
            return value
        return OTHER

    def write(self, obj: Any, value: Any) -> Any:
        return value.obj_to_primitive()


class Objects(Kind):
    """A list of objects."""

    def read(self, obj: Any, value: Any) -> Any:
        if type(value) is not list or not _ENVELOPE.issuperset(
                map(type, value)):
            return OTHER
        made = [obj.obj_from_primitive(each, obj.obj_context)
                for each in value]
        if all(each.obj_name() == self.field.objname for each in made):
            return made
        return self.field.coerce(obj, self.name, made)

    def write(self, obj: Any, value: Any) -> Any:
        return [each.obj_to_primitive() for each in value]


_KINDS: dict[type[fields.Field], type[Kind]] = {
    fields.BooleanField: Boolean,
    fields.DateTimeField: Time,
    fields.DictOfListOfStringsField: TextsByName,
    fields.DictOfStringsField: TextByName,
    fields.FloatField: Float,
    fields.IntegerField: Integer,
    fields.ListOfObjectsField: Objects,
    fields.ListOfStringsField: Texts,
    fields.ObjectField: ObjectKind,
    fields.StringField: Text,
    fields.UUIDField: Text,
    RawField: Document,
}


def kind(name: str, field: Any) -> Kind:
    """Return the kind of a field."""
    if getattr(field.AUTO_TYPE, 'tzinfo_aware', False):
        return Kind(name, field)
    return _KINDS.get(type(field), Kind)(name, field)


def _are_texts(value: Any) -> bool:
    return type(value) is list and _TEXT.issuperset(map(type, value))


def _is_naive(value: Any) -> bool:
    return type(value) is datetime.datetime and value.tzinfo is None
