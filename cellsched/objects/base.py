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

#: Every object says its version, and there are few of them.
_version = functools.lru_cache(256)(versionutils.convert_version_to_tuple)


class Registry(base.VersionedObjectRegistry):
    """The objects of this project.

    oslo.versionedobjects keeps one registry for a process, in which a host
    application's objects of the same names would replace ours. This one is
    apart.
    """

    _own: collections.defaultdict[str, list[type[base.VersionedObject]]] = (
        collections.defaultdict(list))

    def __new__(cls, *args: Any, **kwargs: Any) -> 'Registry':
        self = object.__new__(cls)
        self._obj_classes = cls._own
        return self


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
        classes = Registry.obj_classes().get(objname)
        if not classes:
            raise ovo_exception.UnsupportedObjectError(objtype=objname)
        newest = classes[0]
        if _version(objver)[0] != _version(newest.VERSION)[0]:
            raise ovo_exception.IncompatibleObjectVersion(
                objname=objname, objver=objver, supported=newest.VERSION)
        return newest

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> 'Object':
        self = cls()
        self._context = context
        # What is passed on is what was understood of a newer version, so it
        # must not claim to be that version.
        self.VERSION = min(objver, cls.VERSION, key=_version)
        data = cls._obj_primitive_field(primitive, 'data')
        for name, field in cls.fields.items():
            if name in data:
                if isinstance(data[name], str) and isinstance(
                        field, _LISTS):
                    # Its characters would be taken for what is listed.
                    raise exception.InvalidField(
                        where=cls.obj_name(), field=name, expected='a list')
                try:
                    setattr(self, name,
                            field.from_primitive(self, name, data[name]))
                except (ArithmeticError, AttributeError, KeyError,
                        TypeError, ValueError) as exc:
                    raise exception.InvalidField(
                        where=cls.obj_name(), field=name,
                        expected=_told(exc)) from exc
        changes = cls._obj_primitive_field(primitive, 'changes', [])
        self._changed_fields = {name for name in changes if name in cls.fields}
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
        data = {}
        for name, field in self.fields.items():
            if self.obj_attr_is_set(name):
                data[name] = field.to_primitive(
                    self, name, getattr(self, name))
        return {
            f'{self.OBJ_SERIAL_NAMESPACE}.name': self.obj_name(),
            f'{self.OBJ_SERIAL_NAMESPACE}.namespace':
                self.OBJ_PROJECT_NAMESPACE,
            f'{self.OBJ_SERIAL_NAMESPACE}.version': self.VERSION,
            f'{self.OBJ_SERIAL_NAMESPACE}.data': data,
        }

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return one of values that are known to be right, and not checked.

        To check them takes twenty times as long as to keep them. All fields
        have to be given.
        """
        self = cls()
        self.__dict__.update(
            (_OBJ_ + name, values[name]) for name in cls.fields)
        self._changed_fields = set(values)
        return self

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field's value, or the default where it is not set."""
        # To ask whether it is set and then for it takes ten times as long,
        # and a decision asks some twenty fields.
        return self.__dict__.get(_OBJ_ + name, default)


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
