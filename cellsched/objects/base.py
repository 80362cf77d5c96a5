# SPDX-License-Identifier: Apache-2.0
"""The base of all objects: the envelope, the registry, tolerant reading."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
import functools
import operator
import re
from typing import Any
from typing import ClassVar
from typing import Final
from typing import Self
from typing import TYPE_CHECKING
from typing import TypeVar

from oslo_utils import versionutils
from oslo_versionedobjects import base
from oslo_versionedobjects import exception as ovo_exception
from oslo_versionedobjects import fields

from cellsched import exception

#: Returned in place of a value: the field itself has to convert it.
OTHER: Final = object()

#: Types that are written to JSON unchanged.
PLAIN: Final = frozenset((bool, float, int, str, type(None)))

#: Prefix of the attributes that hold the values of an object.
KEPT_AS: Final = 'value_of_'

_TEXT = frozenset((str,))
_ENVELOPE = frozenset((dict,))
_DOCUMENT = frozenset((bool, dict, float, int, list, str))

#: The form in which times are written.
_TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', re.ASCII)


class Raw(fields.FieldType):
    """Any JSON value, kept unchanged.

    For values that are passed on and not read, such as objects of Nova that
    this project does not know.
    """

    @staticmethod
    def coerce(obj: Any, attr: str, value: Any) -> Any:
        return value


class RawField(fields.AutoTypedField):
    """A field of :class:`Raw`."""

    AUTO_TYPE = Raw()


class SetOfStringsField(fields.AutoTypedField):
    """A set of strings; older releases of the library have no such field."""

    AUTO_TYPE = fields.Set(fields.String())


class Kind:
    """Fast paths of one field, for values of exactly the expected type.

    A field of oslo.versionedobjects coerces every value, which takes ten
    times as long as a check of its type. A value of any other type is passed
    to the field, which converts or refuses it.

    ``kept_as`` is the attribute that holds the value in an object. Values of
    a type in ``plain`` are stored and serialized unchanged.
    """

    types: frozenset[Any] = frozenset()

    def __init__(self, name: str, field: Any) -> None:
        self.name = name
        self.kept_as = KEPT_AS + name
        self.field = field
        self.plain: frozenset[type] = self.types | (
            {type(None)} if field.nullable else set())

    def read(self, obj: Any, value: Any) -> Any:
        """Return the stored value for a deserialized one, or :data:`OTHER`."""
        return self.take(value)

    def take(self, value: Any) -> Any:
        """Return the value to store for a given one, or :data:`OTHER`."""
        return OTHER

    def write(self, obj: Any, value: Any) -> Any:
        """Return the serialized form of a stored value that is not plain."""
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
    """Any JSON value."""

    types = _DOCUMENT

    def write(self, obj: Any, value: Any) -> Any:
        return value


class Texts(Kind):
    """A list of strings."""

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
    """A time in UTC without a time zone."""

    def read(self, obj: Any, value: Any) -> Any:
        if type(value) is not str or not _TIME.fullmatch(value):
            return OTHER
        try:
            return datetime.datetime.fromisoformat(value[:-1])
        except ValueError:
            # No such time exists. The field raises the error.
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
        # An object of another name is refused, and not read twice.
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


def kind_of(name: str, field: Any) -> Kind:
    """Return the kind of a field."""
    if getattr(field.AUTO_TYPE, 'tzinfo_aware', False):
        return Kind(name, field)
    return _KINDS.get(type(field), Kind)(name, field)


def _are_texts(value: Any) -> bool:
    return type(value) is list and _TEXT.issuperset(map(type, value))


def _is_naive(value: Any) -> bool:
    return type(value) is datetime.datetime and value.tzinfo is None


#: Exceptions of the library while it reads a primitive.
READ_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError,
               TypeError, ValueError, exception.Invalid,
               ovo_exception.VersionedObjectsException)


def is_newer(error: BaseException | None) -> bool:
    """Return whether an object was refused for its later major version.

    A record with this object belongs to services of a later release.
    """
    if not isinstance(error, ovo_exception.IncompatibleObjectVersion):
        return False
    try:
        found, known = (_version(error.kwargs[name])[0]
                        for name in ('objver', 'supported'))
    except (LookupError, TypeError, ValueError):
        return False
    return bool(found > known)


#: The most characters of a value in an error message.
_TOLD_MAX = 200

_Object = TypeVar('_Object', bound='Object')

#: Fields of several values.
_LISTS = (fields.ListOfStringsField, SetOfStringsField)

#: Parsed versions. Every object names its version; there are few.
_version = functools.lru_cache(256)(versionutils.convert_version_to_tuple)


#: Classes by name, the newest version first.
_OWN: collections.defaultdict[str, list[type[base.VersionedObject]]] = (
    collections.defaultdict(list))


class Registry:
    """The objects of this project.

    oslo.versionedobjects has one registry for a process. There, objects of
    the same names in an embedding application would replace these, so this
    registry is separate.
    """

    @classmethod
    def register(cls, kind: type[_Object]) -> type[_Object]:
        """Register a class, ordered by version, the newest first.

        Its fields become properties. They store values of the expected type
        directly and pass all other values to the field.
        """
        base.VersionedObjectRegistry.objectify(kind)
        kinds_ = [kind_of(*each) for each in kind.fields.items()]
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


_NAME, _NAMESPACE, _VERSION, _DATA, _CHANGES = (
    f'nova_object.{key}'
    for key in ('name', 'namespace', 'version', 'data', 'changes'))


class Object(base.VersionedObject):
    """Base of all objects."""

    OBJ_SERIAL_NAMESPACE = 'nova_object'
    OBJ_PROJECT_NAMESPACE = 'nova'

    #: The kinds of the fields, by name.
    _kinds: ClassVar[Mapping[str, Kind]] = {}

    #: The same for loops: name, attribute, plain types, kind.
    _table: ClassVar[
        tuple[tuple[str, str, frozenset[type], Kind], ...]] = ()

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
                if value is OTHER:
                    value = kind.field.coerce(self, name, values[name])
            kept[kind.kept_as] = value
            written.add(name)

    @classmethod
    def _made(cls, context: Any, written: set[str]) -> Self:
        """Return an object without values.

        It skips the constructor, which assigns fields one by one.
        """
        self = cls.__new__(cls)
        base.VersionedObject.__init__(self, context)
        self._written = written
        return self

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> type:
        """Return the class that reads this object and version.

        A newer minor version is read by the class of this release, without
        the fields that it does not know. A newer major version is refused.
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
            # Unknown fields of a newer version are dropped, so the object
            # must not claim to be of that version when it is passed on.
            kept['VERSION'] = min(objver, cls.VERSION, key=_version)
        data = primitive[_DATA]
        if not isinstance(data, dict):
            raise exception.InvalidField(
                where=cls.obj_name(), field='data',
                expected='a mapping of names to values')
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
                # The text may have a received value: show one short line.
                text = (f'{exc} is missing' if isinstance(exc, KeyError)
                        else f'{exc}')
                raise exception.InvalidField(
                    where=cls.obj_name(), field=name, problem=''.join(
                        each if each.isprintable() else '?'
                        for each in text[:_TOLD_MAX])) from exc
        return self

    def obj_attr_is_set(self, attrname: str) -> bool:
        if attrname in self._kinds:
            return KEPT_AS + attrname in self.__dict__
        return super().obj_attr_is_set(attrname)

    def obj_what_changed(self) -> set[str]:
        # The library compares the versions of objects in fields.
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
        # A property found no value.
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

        Nothing here saves by changes, and to collect them takes longer than
        the rest of the serialization.
        """
        if target_version is not None:
            return super().obj_to_primitive(target_version, version_manifest)
        kept, data, plain = self.__dict__, {}, PLAIN
        for name, kept_as, _, kind in self._table:
            if kept_as in kept:
                value = kept[kept_as]
                data[name] = (value if type(value) in plain
                              else kind.write(self, value))
        return {_NAME: self.obj_name(), _NAMESPACE: self.OBJ_PROJECT_NAMESPACE,
                _VERSION: self.VERSION, _DATA: data}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return an object of valid values, without checking them.

        The checks take twenty times as long as the assignment. All fields
        have to be given.
        """
        self = cls._made(None, set(values))
        kept = self.__dict__
        for name, kept_as, _, _ in cls._table:
            kept[kept_as] = values[name]
        return self

    def but(self, **values: Any) -> Self:
        """Return a shallow copy with other values, which are not checked."""
        made = self._made(self.obj_context, self._written | values.keys())
        own, its = self.__dict__, made.__dict__
        its.update((kept_as, own[kept_as])
                   for _, kept_as, _, _ in self._table if kept_as in own)
        its.update((KEPT_AS + name, value) for name, value in values.items())
        if 'VERSION' in own:
            made.VERSION = self.VERSION
        return made

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field's value, or the default where it is not set."""
        # A decision reads about twenty fields; a check whether the field is
        # set, followed by a read, takes ten times as long.
        return self.__dict__.get(KEPT_AS + name, default)

    def values_of(self, names: Iterable[str]) -> dict[str, Any]:
        """Return fields' values by name; None for those that are not set."""
        kept = self.__dict__
        return {name: kept.get(KEPT_AS + name) for name in names}


def _setter(kind: Kind) -> Callable[[Any, Any], None]:
    """Return the setter of a field's property."""
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


def _deleter(kind: Kind) -> Callable[[Any], None]:
    """Return the deleter of a field's property."""
    def delete(self: Object) -> None:
        if kind.kept_as not in self.__dict__:
            raise AttributeError(f'{kind.name!r} is not set')
        del self.__dict__[kind.kept_as]

    return delete


def _read(self: Object, kind: Kind, value: Any) -> Any:
    """Return the value of a field for a deserialized value.

    The property would do the same and also track changes and read-only
    fields, which takes twice as long and is not needed here.
    """
    made = kind.read(self, value)
    if made is not OTHER:
        return made
    field, name = kind.field, kind.name
    if isinstance(value, str) and isinstance(field, _LISTS):
        # Iterating a string would make a list of its characters.
        raise ValueError('a list')
    return field.coerce(self, name, field.from_primitive(self, name, value))


class ObjectList(base.ObjectListBase, Object):
    """Base of the lists of objects."""

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> Any:
        self = super()._obj_from_primitive(context, objver, primitive)
        self.__dict__.setdefault(KEPT_AS + 'objects', [])
        return self

    def obj_what_changed(self) -> set[str]:
        return self._written | super().obj_what_changed()
