# SPDX-License-Identifier: Apache-2.0
"""What all objects share: the envelope, the registry, tolerant reading."""

import collections
import functools
from typing import Any
from typing import Self
from typing import TYPE_CHECKING

from oslo_utils import versionutils
from oslo_versionedobjects import base
from oslo_versionedobjects import exception as ovo_exception
from oslo_versionedobjects import fields

from cellsched import exception

#: Before a field's name in an object's dictionary.
_OBJ_ = '_obj_'

#: Characters of an error that are told.
_TOLD_MAX = 200

#: Fields of several values.
_LISTS = (fields.ListOfStringsField, fields.SetOfStringsField)

#: What fields keep as it comes.
_AS_THEY_ARE = {fields.BooleanField: bool, fields.FloatField: float,
                fields.IntegerField: int, fields.StringField: str,
                fields.UUIDField: str}

#: What travels as it is.
_PLAIN = frozenset((bool, float, int, str, type(None)))

#: Every object says its version, and there are few of them.
_version = functools.lru_cache(256)(versionutils.convert_version_to_tuple)


#: Classes by name, the newest version first.
_OWN: collections.defaultdict[str, list[type[base.VersionedObject]]] = (
    collections.defaultdict(list))


class Registry(base.VersionedObjectRegistry):
    """The objects of this project.

    oslo.versionedobjects keeps one registry for a process, in which a host
    application's objects of the same names would replace ours. This one is
    apart.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> 'Registry':
        self = object.__new__(cls)
        self._obj_classes = _OWN
        return self


_NAME, _NAMESPACE, _VERSION, _DATA, _CHANGES = (
    f'nova_object.{key}'
    for key in ('name', 'namespace', 'version', 'data', 'changes'))


class Object(base.VersionedObject):
    """Base of all objects."""

    OBJ_SERIAL_NAMESPACE = 'nova_object'
    OBJ_PROJECT_NAMESPACE = 'nova'

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> type:
        """Return the class that reads this object and version.

        A newer minor version is read by what we have: fields that we do not
        know are left out. A newer major version is refused.
        """
        classes = _OWN.get(objname)
        if not classes:
            raise ovo_exception.UnsupportedObjectError(objtype=objname)
        newest = classes[0]
        if _version(objver)[0] != _version(newest.VERSION)[0]:
            raise ovo_exception.IncompatibleObjectVersion(
                objname=objname, objver=objver, supported=newest.VERSION)
        return newest

    @classmethod
    def obj_from_primitive(
        cls, primitive: dict[str, Any], context: Any = None
    ) -> Any:
        if primitive[_NAMESPACE] != cls.OBJ_PROJECT_NAMESPACE:
            raise ovo_exception.UnsupportedObjectError(
                objtype=f'{primitive[_NAMESPACE]}.{primitive[_NAME]}')
        version = primitive[_VERSION]
        kind: Any = cls.obj_class_from_name(primitive[_NAME], version)
        return kind._obj_from_primitive(context, version, primitive)

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> 'Object':
        self = cls()
        self._context = context
        # What is passed on is what was understood of a newer version, so it
        # must not claim to be that version.
        self.VERSION = min(objver, cls.VERSION, key=_version)
        data = primitive[_DATA]
        if not isinstance(data, dict):
            raise exception.InvalidField(
                where=cls.obj_name(), field='data', expected='values by name')
        kept, fields_ = self.__dict__, cls.fields
        for name, field in fields_.items():
            if name not in data:
                continue
            try:
                kept[_OBJ_ + name] = _read(self, field, name, data[name])
            except (ArithmeticError, AttributeError, KeyError,
                    TypeError, ValueError) as exc:
                raise exception.InvalidField(
                    where=cls.obj_name(), field=name,
                    expected=_told(exc)) from exc
        self._changed_fields = set(primitive.get(_CHANGES, ())).intersection(
            fields_)
        return self

    if TYPE_CHECKING:
        # Fields become properties when a class is registered.
        def __getattr__(self, name: str) -> Any:
            ...

        def __setattr__(self, name: str, value: Any) -> None:
            ...

    def obj_to_primitive(
        self, target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the envelope, without the list of changed fields.

        Nothing here saves by changes, and to find them takes longer than all
        the rest.
        """
        if target_version is not None:
            return super().obj_to_primitive(target_version, version_manifest)
        kept, data = self.__dict__, {}
        for name, field in self.fields.items():
            if _OBJ_ + name in kept:
                value = kept[_OBJ_ + name]
                data[name] = (value if type(value) in _PLAIN else
                              field.to_primitive(self, name, value))
        return {_NAME: self.obj_name(), _NAMESPACE: self.OBJ_PROJECT_NAMESPACE,
                _VERSION: self.VERSION, _DATA: data}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return one of values that are known to be right, and not checked.

        To check them takes twenty times as long as to keep them. All fields
        have to be given.
        """
        self = cls()
        kept = self.__dict__
        for name in cls.fields:
            kept[_OBJ_ + name] = values[name]
        self._changed_fields = set(values)
        return self

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field's value, or the default where it is not set."""
        # To ask whether it is set and then for it takes ten times as long,
        # and a decision asks some twenty fields.
        return self.__dict__.get(_OBJ_ + name, default)


def _read(self: Object, field: Any, name: str, value: Any) -> Any:
    """Return what a field makes of what came.

    A property would do it, and see to changes and constants too, which are
    nothing here and take twice as long.
    """
    if value is None and field.nullable or (
            type(value) is _AS_THEY_ARE.get(type(field))):
        return value
    if isinstance(value, str) and isinstance(field, _LISTS):
        # Its characters would be taken for what is listed.
        raise ValueError('a list')
    if type(field) is fields.ObjectField and type(value) is dict:
        value = Object.obj_from_primitive(value, self._context)
    else:
        value = field.from_primitive(self, name, value)
    return field.coerce(self, name, value)


def _told(exc: Exception) -> str:
    """Return what an error says of a value that came, in one short line."""
    text = f'{exc} is missing' if isinstance(exc, KeyError) else f'{exc}'
    return ''.join(each if each.isprintable() else '?'
                   for each in text[:_TOLD_MAX])


class ObjectList(base.ObjectListBase, Object):
    """Base of the lists of objects."""


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
