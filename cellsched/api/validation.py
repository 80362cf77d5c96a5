# SPDX-License-Identifier: Apache-2.0
"""Validation of the input of the API."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

from cellsched.api import schemas
from cellsched import exception

#: Scheduler hints that every deployment supports.
HINTS = frozenset({'group'})

#: Values of fields of a request that are not given.
_DEFAULTS: Mapping[str, Any] = {
    'image_ref': None, 'availability_zone': None, 'hints': {}, 'tags': (),
    'block_device_mappings': ()}

#: Characters of an invalid value that an error shows.
_SHOWN_MAX = 60


@dataclasses.dataclass(frozen=True)
class ServerBounds:
    """The bounds that a deployment sets.

    :param instances_max: servers of one request
    :param limit_max: servers of one page of a listing
    :param hints: returns the names of the scheduler hints that the enabled
        filters support; None allows any name that does not begin with ``_``
    :param group_members_max: members of a server group
    """

    instances_max: int
    limit_max: int
    hints: Callable[[], frozenset[str] | None]
    group_members_max: int = 1000


@dataclasses.dataclass(frozen=True)
class ServerRequest:
    """A request for servers, as a user made it."""

    name: Any
    flavor: Any
    image_ref: Any
    availability_zone: Any
    hints: Any
    min_count: Any
    max_count: Any
    tags: Any = ()
    block_device_mappings: Any = ()

    def check(self, bounds: ServerBounds) -> None:
        """Make sure that the request is valid.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        """
        most = bounds.instances_max
        check_count('server', 'min_count', self.min_count, most)
        check_count('server', 'max_count', self.max_count, most,
                    self.min_count)
        # Most requests have a name and a flavor alone.
        given = {'name': self.name, 'flavor': self.flavor}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value is not default and value != default:
                given[name] = value
        validate('server', '', given, schemas.SERVER)
        if self.max_count > 1:
            # The number of each server is added to the name.
            check_text('server', 'name', self.name,
                       schemas.TEXT_MAX - len(f'-{self.max_count}'))
        if self.hints:
            _check_hint_names(self.hints, bounds.hints())
        _check_devices(self.block_device_mappings, self.max_count > 1)

    @property
    def group(self) -> str | None:
        """The server group that the servers join."""
        values = self.hints.get('group')
        return values[0] if values else None


def validate(
    where: str, field: str, value: Any, schema: schemas.Schema
) -> None:
    """Make sure that a value is valid by a JSON schema.

    :param field: the field that has the value; empty if ``where`` names it
    :raises cellsched.exception.InvalidField: names the first invalid field,
        its problem and its bound
    """
    error = next(_validators()(schema).iter_errors(value), None)
    if error is None:
        return
    path = list(error.absolute_path)
    if error.validator == 'required':
        path.append(next(name for name in error.validator_value
                         if name not in error.instance))
    elif (path and isinstance(path[-1], int)
          and error.schema.get('type') != 'object'):
        # The text of an item identifies it better than its index.
        path.pop()
    name = field
    for part in path:
        name += f'[{part}]' if isinstance(part, int) else f'.{part}'
    raise exception.InvalidField(
        where=where, field=name.lstrip('.') or where,
        problem=_problem(error), expected=_expected(error))


@functools.cache
def _validators() -> Callable[[Mapping[str, Any]], Any]:
    """Return the maker of validators, for Python's types and our formats."""
    # Commands import this module, and not each of them validates something.
    import jsonschema

    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many({
        'array': lambda _, value: isinstance(value, (list, tuple)),
        'object': lambda _, value: isinstance(value, Mapping),
        'integer': lambda _, value: (
            isinstance(value, int) and not isinstance(value, bool))})

    def without_text(check: Any) -> Any:
        def errors(*args: Any) -> Iterator[Any]:
            try:
                yield from check(*args)
            except ValueError:
                # The text of the library's error would have a number that is
                # too large for Python to convert. The text is not used.
                yield jsonschema.ValidationError('')
        return errors

    known = jsonschema.Draft202012Validator.VALIDATORS
    validator = jsonschema.validators.extend(
        jsonschema.Draft202012Validator, type_checker=checker, validators={
            keyword: without_text(check) for keyword, check in known.items()})
    formats = jsonschema.FormatChecker(formats=())
    formats.checks('printable')(lambda value: not isinstance(value, str) or (
        value.isprintable() and not value.isspace()))
    formats.checks('finite')(lambda value: not isinstance(value, float) or (
        math.isfinite(value)))
    return lambda schema: validator(schema, format_checker=formats)


def _problem(error: Any) -> str:
    """Return the problem of a value, for people."""
    value = error.instance
    match error.validator:
        case 'required':
            return 'it is missing'
        case 'additionalProperties':
            unknown = [name for name in value
                       if name not in error.schema['properties']]
            return f'unknown field {shown(unknown[0])}'
        case 'minItems' | 'maxItems' | 'minProperties' | 'maxProperties':
            return f'it has {len(value)} items'
        case 'minimum' | 'maximum' | 'exclusiveMinimum':
            return f'{shown(value)} is out of range'
    return f'{shown(value)} is not valid'


def _expected(error: Any) -> str:
    """Return the expectation of a schema, for people."""
    schema = error.schema
    if error.validator == 'required':
        schema = schema.get('properties', {}).get(
            next(name for name in error.validator_value
                 if name not in error.instance), {})
    elif error.validator == 'additionalProperties':
        return f'one of {", ".join(schema["properties"])}'
    if 'description' in schema:
        return str(schema['description'])
    if 'enum' in schema:
        return f'one of {", ".join(schema["enum"])}'
    kind = schema.get('type', 'value')
    match kind if isinstance(kind, str) else kind[0]:
        case 'string':
            return f'1 to {schema["maxLength"]} printable characters'
        case 'integer':
            return (f'a whole number from {schema["minimum"]} to '
                    f'{schema["maximum"]}')
        case 'boolean':
            return 'true or false'
        case 'array':
            return (f'a list of {schema.get("minItems", 0)} to '
                    f'{schema["maxItems"]} items')
        case 'object' if 'maxProperties' in schema:
            return f'a mapping of at most {schema["maxProperties"]} keys'
        case 'object':
            return 'a mapping'
    return 'a value'


def check_text(
    where: str, field: str, value: Any, most: int = schemas.TEXT_MAX
) -> None:
    """Make sure that a value is a name or another text in one line.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and 0 < len(value) <= most
            and value.isprintable() and not value.isspace()):
        raise exception.InvalidField(
            where=where, field=field, problem=f'{shown(value)} is not valid',
            expected=f'1 to {most} printable characters')


def check_count(
    where: str, field: str, value: Any, most: int, least: int = 1
) -> None:
    """Make sure that a value is a whole number between two bounds.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, int) and not isinstance(value, bool)
            and least <= value <= most):
        raise exception.InvalidField(
            where=where, field=field,
            problem=f'{shown(value)} is out of range',
            expected=f'a whole number from {least} to {most}')


def check_choice(
    where: str, field: str, value: Any, choices: Sequence[str]
) -> None:
    """Make sure that a value is one of several texts.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and value in choices):
        raise exception.InvalidField(
            where=where, field=field, problem=f'{shown(value)} is not valid',
            expected=f'one of {", ".join(choices)}')


def _check_hint_names(
    hints: Mapping[Any, Any], known: frozenset[str] | None
) -> None:
    """Make sure that every scheduler hint is supported."""
    for hint in hints:
        if known is None:
            check_text('server', 'hints', hint)
            if hint.startswith('_'):
                raise exception.InvalidField(
                    where='server', field='hints',
                    problem=f'the name {shown(hint)} is reserved',
                    expected='a name that does not begin with _')
        elif hint not in known | HINTS:
            raise exception.InvalidField(
                where='server', field='hints',
                problem=f'no enabled filter supports {shown(hint)}',
                expected=f'one of {", ".join(sorted(known | HINTS))}')


def _check_devices(
    devices: Sequence[Mapping[str, Any]], several: bool
) -> None:
    """Check the constraints of block devices that no schema has.

    :param several: whether more than one server gets them
    """
    where, field = 'server', 'block_device_mappings'
    boots = [device['boot_index'] for device in devices
             if (device.get('boot_index') or 0) >= 0
             and device.get('boot_index') is not None]
    if len(boots) != len(set(boots)):
        raise exception.InvalidField(
            where=where, field=field, problem='a boot_index is repeated',
            expected='each boot_index once')
    for number, device in enumerate(devices):
        if several and device['source_type'] == 'volume':
            raise exception.InvalidField(
                where=where, field=f'{field}[{number}].source_type',
                problem='a volume belongs to one server, and several are '
                        'requested', expected='another source')


def shown(value: Any) -> str:
    """Return a value for an error: short, and on one line."""
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to convert a very large number to a text.
        return 'a very large number'
    if isinstance(value, (str, bytes)):
        value = value[:_SHOWN_MAX]
    text = ascii(value)
    return text if len(text) <= _SHOWN_MAX else f'{text[:_SHOWN_MAX - 3]}...'
