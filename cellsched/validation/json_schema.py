# SPDX-License-Identifier: Apache-2.0
"""Validation by JSON schemas, with errors in words.

An object may be any mapping, and an array any list or tuple. An integer is
neither a boolean nor 2.0, and a number is finite. The format ``printable`` is
text of printable characters. A schema has a ``description``, its expectation
in words, if its bounds do not explain it.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
import math
import pathlib
from typing import Any

from cellsched import exception

#: Characters of an invalid value that an error shows.
_SHOWN_MAX = 60

_KINDS = {'object': 'a mapping', 'array': 'a list', 'string': 'text',
          'integer': 'a whole number', 'number': 'a number',
          'boolean': 'true or false'}


def check(
    where: object, value: Any, schema: Mapping[str, Any], field: str = ''
) -> None:
    """Make sure that a value is valid by a schema.

    :param where: the document, such as the path of a file
    :param field: the field of the document that has the value; empty if the
        value is the document
    :raises cellsched.exception.InvalidField: names the first invalid field,
        its problem and the expectation
    """
    error = next(_validators()(schema).iter_errors(value), None)
    if error is None:
        return
    way = [*([field] if field else []), *error.absolute_path]
    if error.validator == 'required':
        way.append(_missing(error))
    raise exception.InvalidField(
        where=str(where), field=field_name(way), problem=_problem(error),
        expected=_expected(error))


def field_name(way: Iterable[str | int]) -> str:
    """Return the name of a field, given by the way to it."""
    name = ''
    for part in way:
        name += f'[{part}]' if isinstance(part, int) else f'.{part}'
    return name.lstrip('.') or 'document'


def invalid(
    path: pathlib.Path, field: Iterable[str | int],
    expected: str | None = None, problem: str | None = None,
) -> exception.InvalidField:
    """Return the error for a field, given by the way to it."""
    return exception.InvalidField(
        where=str(path), field=field_name(field), problem=problem,
        expected=expected)


@functools.cache
def _validators() -> Callable[[Mapping[str, Any]], Any]:
    """Return the maker of validators, for Python's types and our formats."""
    # Commands import this module, and not each of them validates something.
    import jsonschema

    def is_whole(_: Any, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def is_number(_: Any, value: Any) -> bool:
        # NaN is neither more nor less than any bound.
        return is_whole(_, value) or (
            isinstance(value, float) and math.isfinite(value))

    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many({
        'array': lambda _, value: isinstance(value, (list, tuple)),
        'object': lambda _, value: isinstance(value, Mapping),
        'integer': is_whole, 'number': is_number})

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
    return lambda schema: validator(schema, format_checker=formats)


def _missing(error: Any) -> str:
    """Return the first missing field."""
    return next(name for name in error.validator_value
                if name not in error.instance)


def _problem(error: Any) -> str:
    """Return the problem of a value, for people."""
    value = error.instance
    match error.validator:
        case 'required':
            return 'it is missing'
        case 'additionalProperties':
            known = error.schema.get('properties', ())
            return 'unknown field ' + shown(next(
                name for name in value if name not in known))
        case 'minItems' | 'maxItems' | 'minProperties' | 'maxProperties':
            return f'it has {len(value)} items'
        case 'uniqueItems':
            return 'an item is repeated'
        case 'minimum' | 'maximum' | 'exclusiveMinimum':
            return f'{shown(value)} is out of range'
    return f'{shown(value)} is not valid'


def _expected(error: Any) -> str:
    """Return the expectation of a schema, for people."""
    schema = error.schema
    if error.validator == 'required':
        schema = schema.get('properties', {}).get(_missing(error), {})
    kinds = schema.get('type', [])
    kinds = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds)
             if kind != 'null']
    if error.validator == 'type' and len(kinds) > 1:
        return ' or '.join(_KINDS[kind] for kind in kinds)
    if 'description' in schema:
        return str(schema['description'])
    if error.validator == 'additionalProperties':
        return f'one of {", ".join(schema["properties"])}'
    if error.validator == 'uniqueItems':
        return 'each item once'
    if 'enum' in schema:
        return f'one of {", ".join(map(str, schema["enum"]))}'
    return _within_bounds(kinds[0], schema) if kinds else 'a value'


def _within_bounds(kind: str, schema: Mapping[str, Any]) -> str:
    """Return the expectation of a type and its bounds, for people."""
    words = _KINDS[kind]
    match kind, schema:
        case 'string', {'format': 'printable', 'maxLength': most}:
            return f'1 to {most} printable characters'
        case 'string', {'minLength': _}:
            return 'text that is not empty'
        case _, {'exclusiveMinimum': least, 'maximum': most}:
            return f'{words} above {least:.15g}, at most {most:.15g}'
        case _, {'exclusiveMinimum': least}:
            return f'{words} above {least:.15g}'
        case _, {'minimum': least, 'maximum': most}:
            return f'{words} from {least:.15g} to {most:.15g}'
        case 'array', {'maxItems': most}:
            return f'a list of {schema.get("minItems", 0)} to {most} items'
        case 'array', {'minItems': least}:
            return f'a list of at least {least} items'
        case 'object', {'maxProperties': most}:
            return f'a mapping of at most {most} keys'
    return words


def shown(value: Any) -> str:
    """Return a value for an error: short, and on one line."""
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to convert a very large number to a text.
        return 'a very large number'
    if isinstance(value, (str, bytes)):
        value = value[:_SHOWN_MAX]
    text = ascii(value)
    return text if len(text) <= _SHOWN_MAX else f'{text[:_SHOWN_MAX - 3]}...'
