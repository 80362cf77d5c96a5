# SPDX-License-Identifier: Apache-2.0
"""The base of all objects: the envelope, the registry, tolerant reading."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import functools
import operator
from typing import Any
from typing import ClassVar
from typing import Self
from typing import TYPE_CHECKING
from typing import TypeVar

from oslo_utils import versionutils
from oslo_versionedobjects import base
from oslo_versionedobjects import exception as ovo_exception
from oslo_versionedobjects import fields

from cellsched import exception
from cellsched.objects import kinds

#: What reading a primitive raises that is none of ours.
READ_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError,
               TypeError, ValueError, exception.Invalid,
               ovo_exception.VersionedObjectsException)

#: Characters of an error that are told.
_TOLD_MAX = 200

_Object = TypeVar('_Object', bound='Object')

#: Fields of several values.
_LISTS = (fields.ListOfStringsField, kinds.SetOfStringsField)

#: Every object says its version, and there are few of them.
_version = functools.lru_cache(256)(versionutils.convert_version_to_tuple)


#: Classes by name, the newest version first.
_OWN: collections.defaultdict[str, list[type[base.VersionedObject]]] = (
    collections.defaultdict(list))


class Registry:
    """The objects of this project.

    oslo.versionedobjects keeps one registry for a process, in which a host
    application's objects of the same names would replace ours. This one is
    apart.
    """

    @classmethod
    def register(cls, kind: type[_Object]) -> type[_Object]:
        """Register a class, in the order of versions, the newest first.

        Its fields become properties that keep values in attributes of ours,
        and leave to the field what is not of the very type that it expects.
        """
        base.VersionedObjectRegistry.objectify(kind)
        kinds_ = [kinds.kind(*each) for each in kind.fields.items()]
        kind._kinds = {each.name: each for each in kinds_}
        kind._table = tuple(
            (each.name, each.kept_as, each.plain, each) for each in kinds_)
        for each in kinds_:
            setattr(kind, each.name, property(
                operator.attrgetter(each.kept_as), _setter(each),
                _deleter(each)))
        known = _OWN[kind.obj_name()]
        known[:] = [
            each for each in known if each.VERSION != kind.VERSION] + [kind]
        known.sort(key=lambda each: _version(each.VERSION), reverse=True)
        return kind

    @classmethod
    def obj_classes(cls) -> dict[str, list[type[base.VersionedObject]]]:
        """Return the classes by name, the newest version first."""
        return _OWN


def is_known(name: str) -> bool:
    """Return whether there is an object of a name."""
    return name in _OWN


_NAME, _NAMESPACE, _VERSION, _DATA, _CHANGES = (
    f'nova_object.{key}'
    for key in ('name', 'namespace', 'version', 'data', 'changes'))


class Object(base.VersionedObject):
    """Base of all objects."""

    OBJ_SERIAL_NAMESPACE = 'nova_object'
    OBJ_PROJECT_NAMESPACE = 'nova'

    #: The kinds of the fields, by name.
    _kinds: ClassVar[Mapping[str, kinds.Kind]] = {}

    #: The same for loops: name, where it is kept, plain types, kind.
    _table: ClassVar[
        tuple[tuple[str, str, frozenset[type], kinds.Kind], ...]] = ()

    #: Fields that were set since changes were last reset.
    _written: set[str]

    def __init__(self, context: Any = None, **values: Any) -> None:
        kept, kinds_ = self.__dict__, self._kinds
        written = kept['_written'] = set()
        super().__init__(context)
        for name, value in values.items():
            kind = kinds_.get(name)
            if kind is None:
                setattr(self, name, value)
                continue
            if type(value) not in kind.plain:
                value = kind.take(value)
                if value is kinds.OTHER:
                    value = kind.field.coerce(self, name, values[name])
            kept[kind.kept_as] = value
            written.add(name)

    @classmethod
    def _made(cls, context: Any, written: set[str]) -> Self:
        """Return one without values.

        To make them one by one is what costs time.
        """
        self = cls.__new__(cls)
        base.VersionedObject.__init__(self, context)
        self._written = written
        return self

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
        if objver != newest.VERSION and (
                _version(objver)[0] != _version(newest.VERSION)[0]):
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
        self = cls._made(context, set() if _CHANGES not in primitive else (
            set(primitive[_CHANGES]).intersection(cls.fields)))
        kept = self.__dict__
        if objver != cls.VERSION:
            # What is passed on is what was understood of a newer version, so
            # it must not claim to be that version.
            kept['VERSION'] = min(objver, cls.VERSION, key=_version)
        data = primitive[_DATA]
        if not isinstance(data, dict):
            raise exception.InvalidField(
                where=cls.obj_name(), field='data', expected='values by name')
        for name, kept_as, plain, kind in cls._table:
            if name not in data:
                continue
            value = data[name]
            if type(value) in plain:
                kept[kept_as] = value
                continue
            try:
                kept[kept_as] = _read(self, kind, value)
            except (ArithmeticError, AttributeError, KeyError,
                    TypeError, ValueError) as exc:
                raise exception.InvalidField(
                    where=cls.obj_name(), field=name,
                    expected=_told(exc)) from exc
        return self

    def obj_attr_is_set(self, attrname: str) -> bool:
        if attrname in self._kinds:
            return kinds.KEPT_AS + attrname in self.__dict__
        return super().obj_attr_is_set(attrname)

    def obj_what_changed(self) -> set[str]:
        # What is inside of a field is looked at by the library.
        return self._written | super().obj_what_changed()

    def obj_reset_changes(
        self, fields: list[str] | None = None, recursive: bool = False
    ) -> None:
        super().obj_reset_changes(fields, recursive)
        self._written -= set(fields or self._written)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = super().__deepcopy__(memo)
        made._written = set(self._written)
        return made

    def __getattr__(self, name: str) -> Any:
        # A property has found no value.
        if name in self._kinds:
            self.obj_load_attr(name)
        raise AttributeError(
            f'{type(self).__name__!r} object has no attribute {name!r}')

    if TYPE_CHECKING:
        # Fields become properties when a class is registered.
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
        kept, data, plain = self.__dict__, {}, kinds.PLAIN
        for name, kept_as, _, kind in self._table:
            if kept_as in kept:
                value = kept[kept_as]
                data[name] = (value if type(value) in plain
                              else kind.write(self, value))
        return {_NAME: self.obj_name(), _NAMESPACE: self.OBJ_PROJECT_NAMESPACE,
                _VERSION: self.VERSION, _DATA: data}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return one of values that are known to be right, and not checked.

        To check them takes twenty times as long as to keep them. All fields
        have to be given.
        """
        self = cls._made(None, set(values))
        kept = self.__dict__
        for name, kept_as, _, _ in cls._table:
            kept[kept_as] = values[name]
        return self

    def but(self, **values: Any) -> Self:
        """Return a copy with other values, which are not checked either.

        What it has in common with this one they share.
        """
        made = self._made(self.obj_context, self._written | values.keys())
        mine, its = self.__dict__, made.__dict__
        its.update((kept_as, mine[kept_as])
                   for _, kept_as, _, _ in self._table if kept_as in mine)
        its.update((kinds.KEPT_AS + name, value)
                   for name, value in values.items())
        if 'VERSION' in mine:
            made.VERSION = self.VERSION
        return made

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field's value, or the default where it is not set."""
        # To ask whether it is set and then for it takes ten times as long,
        # and a decision asks some twenty fields.
        return self.__dict__.get(kinds.KEPT_AS + name, default)


def _setter(kind: kinds.Kind) -> Callable[[Any, Any], None]:
    """Return what sets a field."""
    name, kept_as, plain, field = (
        kind.name, kind.kept_as, kind.plain, kind.field)

    def set_(self: Object, value: Any) -> None:
        if type(value) not in plain:
            value = field.coerce(self, name, value)
        if field.read_only and kept_as in self.__dict__:
            if self.__dict__[kept_as] != value:
                raise ovo_exception.ReadOnlyFieldError(field=name)
            return
        self.__dict__[kept_as] = value
        self._written.add(name)

    return set_


def _deleter(kind: kinds.Kind) -> Callable[[Any], None]:
    """Return what removes a field's value."""
    def delete(self: Object) -> None:
        if kind.kept_as not in self.__dict__:
            raise AttributeError(f'{kind.name!r} is not set')
        del self.__dict__[kind.kept_as]

    return delete


def _read(self: Object, kind: kinds.Kind, value: Any) -> Any:
    """Return what a field makes of what came.

    A property would do it, and see to changes and constants too, which are
    nothing here and take twice as long.
    """
    made = kind.read(self, value)
    if made is not kinds.OTHER:
        return made
    field, name = kind.field, kind.name
    if isinstance(value, str) and isinstance(field, _LISTS):
        # Its characters would be taken for what is listed.
        raise ValueError('a list')
    return field.coerce(self, name, field.from_primitive(self, name, value))


def _told(exc: Exception) -> str:
    """Return what an error says of a value that came, in one short line."""
    text = f'{exc} is missing' if isinstance(exc, KeyError) else f'{exc}'
    return ''.join(each if each.isprintable() else '?'
                   for each in text[:_TOLD_MAX])


class ObjectList(base.ObjectListBase, Object):
    """Base of the lists of objects."""

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> Any:
        self = super()._obj_from_primitive(context, objver, primitive)
        self.__dict__.setdefault(kinds.KEPT_AS + 'objects', [])
        return self

    def obj_what_changed(self) -> set[str]:
        return self._written | super().obj_what_changed()
