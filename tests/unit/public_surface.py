# SPDX-License-Identifier: Apache-2.0
"""The public surface, read from the modules that the page names.

``python -m tests.unit.public_surface`` writes it into the page.
"""

from collections.abc import Iterator
import enum
import functools
import importlib
import inspect
import pathlib
import re
import textwrap
import types
from typing import Any
from typing import Protocol

PAGE = pathlib.Path(__file__).resolve().parents[2] / (
    'doc/source/reference/public-api.rst')

#: A comment that names a module, and names in it where not all are public;
#: the block that follows says what is there.
_BLOCK = re.compile(
    r'(?P<head>^\.\. surface: (?P<module>\S+)(?P<names>.*)\n\n'
    r'\.\. code-block:: text\n\n)(?:(?:   .*)?\n)*?(?=\S|\Z)', re.MULTILINE)

_LITERALS = (bool, bytes, float, int, str, tuple, types.NoneType)


def modules(page: str) -> list[str]:
    """Return the modules that a page names."""
    return [match['module'] for match in _BLOCK.finditer(page)]


def written(page: str) -> str:
    """Return a page whose blocks say what the modules have."""
    def block(match: re.Match[str]) -> str:
        lines = described(match['module'], match['names'].split())
        return match['head'] + ''.join(
            f'{wrapped}\n' for line in lines for wrapped in _wrap(line)
        ) + '\n'

    return _BLOCK.sub(block, page).rstrip('\n') + '\n'


def _wrap(line: str) -> list[str]:
    indent = ' ' * (3 + len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line.lstrip(), 79, initial_indent=indent,
        subsequent_indent=f'{indent}        ', break_long_words=False,
        break_on_hyphens=False)


def described(name: str, wanted: list[str]) -> Iterator[str]:
    """Yield a line for each public name of a module and of its classes."""
    module = importlib.import_module(name)
    for each in wanted or getattr(module, '__all__', None) or _own(module):
        value = getattr(module, each)
        if _is_detailed(value):
            made = '' if _is_never_made(value) else _signature(value)
            yield f'{each}{made}'
            handed = inspect.signature(value).parameters if made else ()
            for member in sorted(_members(value)):
                # A field that is handed over is named already.
                if member not in handed or _is_code(value, member):
                    yield f'    .{member}{_member(value, member)}'
        elif inspect.isfunction(value):
            yield f'{each}{_signature(value)}'
        else:
            yield each


def _is_detailed(value: Any) -> bool:
    """Whether members are listed: of no object and no error they are."""
    return inspect.isclass(value) and not (
        issubclass(value, BaseException) or hasattr(value, 'obj_to_primitive'))


def _is_never_made(cls: type) -> bool:
    return issubclass(cls, enum.Enum) or Protocol in cls.__bases__


def _own(module: types.ModuleType) -> list[str]:
    return sorted(
        name for name, value in vars(module).items()
        if not name.startswith('_') and (
            inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__)


def _members(cls: type) -> set[str]:
    return {name for base in cls.__mro__
            if base.__module__.startswith('cellsched.')
            for name in {*vars(base), *vars(base).get('__annotations__', {})}
            if not name.startswith('_')}


def _is_code(cls: type, name: str) -> bool:
    value = inspect.getattr_static(cls, name, None)
    return isinstance(
        value, property | functools.cached_property | classmethod
        | staticmethod) or inspect.isfunction(value)


def _member(cls: type, name: str) -> str:
    value = inspect.getattr_static(cls, name, None)
    if isinstance(value, classmethod | staticmethod):
        return _signature(getattr(cls, name))
    if inspect.isfunction(value):
        return _signature(value, skipped=1)
    return ''


def _signature(value: Any, skipped: int = 0) -> str:
    """Return parameters and defaults; types are in the source."""
    try:
        found = inspect.signature(value)
    except ValueError:
        return '()'
    parameters = [
        each.replace(annotation=each.empty, default=_default(each.default))
        for each in list(found.parameters.values())[skipped:]]
    return str(found.replace(
        parameters=parameters, return_annotation=found.empty))


class _Shown:
    """What stands for a default that no literal says."""

    def __repr__(self) -> str:
        return '...'


def _default(value: Any) -> Any:
    return value if value is inspect.Parameter.empty or isinstance(
        value, _LITERALS) else _Shown()


if __name__ == '__main__':
    PAGE.write_text(written(PAGE.read_text(encoding='utf-8')),
                    encoding='utf-8')
