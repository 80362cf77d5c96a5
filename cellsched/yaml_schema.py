# SPDX-License-Identifier: Apache-2.0
"""The check of a YAML file against a JSON schema, with errors in words.

Apart from :mod:`cellsched.yaml_file`, as to import the library takes long.
"""

from collections.abc import Mapping
import math
import pathlib
from typing import Any

import jsonschema

from cellsched.yaml_file import invalid

#: The key of a schema with its expectation in words.
EXPECTS = 'expects'


def _is_whole(checker: Any, value: Any) -> bool:
    # The standard has 2.0 among the integers.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    # NaN is neither more nor less than any bound.
    return _is_whole(checker, value) or (
        isinstance(value, float) and math.isfinite(value))


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {'integer': _is_whole, 'number': _is_number}))


def check(
    path: pathlib.Path, document: Any, schema: Mapping[str, Any]
) -> None:
    """Check a document of a file against a schema.

    :raises cellsched.exception.InvalidField: names the file, the field and
        the expectation
    """
    errors = sorted(
        _Validator(schema).iter_errors(document),
        key=lambda error: [str(part) for part in error.absolute_path])
    for error in errors:
        raise invalid(path, error.absolute_path, *_reasons(error))


def _reasons(
    error: jsonschema.ValidationError
) -> tuple[str | None, str | None]:
    """Return the expectation and the problem of a rule of the schema."""
    got: Any = error.instance
    problem = f'{got!r:.60} is not valid'
    rule: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case 'type':
            kinds = rule if isinstance(rule, list) else [rule]
            return ' or '.join(map(_kind, kinds)), problem
        case 'minimum':
            return f'at least {rule}', problem
        case 'maximum':
            return f'at most {rule}', problem
        case 'exclusiveMinimum':
            return f'more than {rule}', problem
        case 'exclusiveMaximum':
            return f'less than {rule}', problem
        case 'enum':
            return f'one of {", ".join(map(str, rule))}', problem
        case 'required':
            missing = sorted(set(rule) - set(got))
            return None, f'{missing[0]} is missing'
        case 'additionalProperties':
            known = schema['properties']
            unknown = sorted(str(key) for key in got if key not in known)
            return f'one of {", ".join(known)}', f'unknown key {unknown[0]}'
        case 'minItems':
            return f'at least {rule} items', None
        case 'maxItems':
            return f'at most {rule} items', None
        case 'uniqueItems':
            return 'each item once', 'an item is repeated'
        case 'pattern' | 'minLength' | 'maxLength' if EXPECTS in schema:
            return str(schema[EXPECTS]), problem
        case 'minLength':
            return 'text', 'it is empty'
    return None, error.message


def _kind(name: str) -> str:
    return {'object': 'a mapping', 'array': 'a list', 'string': 'text',
            'integer': 'a whole number', 'number': 'a number',
            'boolean': 'true or false'}.get(name, name)
