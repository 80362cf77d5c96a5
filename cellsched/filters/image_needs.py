# SPDX-License-Identifier: Apache-2.0
"""Parsing and validation of the requirements of an image on its host."""

from collections.abc import Callable
from collections.abc import Iterable
import operator
from typing import Any

from packaging import version as packaging

from cellsched.objects import keys

ARCHITECTURES = keys.ARCHITECTURES

#: The properties of a kind of host, in the order in which a host reports them.
_KINDS = ('hw_architecture', 'img_hv_type', 'hw_vm_mode')

_COMPARES = {'<': operator.lt, '<=': operator.le, '==': operator.eq,
             '>': operator.gt, '>=': operator.ge, '!=': operator.ne}


def kind(name: str, value: Any) -> str:
    """Return the value of a property in the spelling of hosts."""
    _check(name, value)
    return str(keys.PROPERTIES.canonical(name, value))


def supported(values: Iterable[str]) -> frozenset[str]:
    """Return the supported values, from one of a host's tuples."""
    return frozenset(map(keys.PROPERTIES.canonical, _KINDS, values))


def versions(text: Any) -> Callable[[int], bool]:
    """Return a test of versions such as 1002003 (1.2.3) for ``>=1.2,<8``."""
    _check('img_hv_requested_version', text)
    checks = [(_COMPARES[sign], bound)
              for sign, bound in keys.versions(text) or ()]
    return lambda number: number <= 0 or all(
        compares(_version(number), bound) for compares, bound in checks)


def bits(value: Any) -> int:
    """Return the required number of address bits; 0 for no requirement."""
    _check('hw_maxphysaddr_bits', value)
    return 0 if value is None else int(value)


def _version(number: int) -> packaging.Version:
    text = ''
    while number:
        number, part = divmod(number, 1000)
        text = f'{part}.{text}'
    return packaging.Version(text.rstrip('.'))


def _check(name: str, value: Any) -> None:
    keys.PROPERTIES.check({name: value}, 'request', 'image.properties')
