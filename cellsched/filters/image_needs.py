# SPDX-License-Identifier: Apache-2.0
"""Parsing and validation of the requirements of an image on its host."""

from collections.abc import Callable
from collections.abc import Iterable
import operator
import re
from typing import Any
from typing import NoReturn

from packaging import version as packaging

from cellsched import exception

ARCHITECTURES = (
    'alpha armv6 armv7l armv7b aarch64 cris i686 ia64 lm32 m68k microblaze '
    'microblazeel mips mipsel mips64 mips64el openrisc parisc parisc64 ppc '
    'ppcle ppc64 ppc64le ppcemb s390 s390x sh4 sh4eb sparc sparc64 unicore32 '
    'x86_64 xtensa xtensaeb').split()

#: Aliases of architectures.
ARCHITECTURE_ALIASES = {'amd64': 'x86_64', **dict.fromkeys(
    ('i386', 'i486', 'i586', 'x86_32', 'x86_32p'), 'i686')}

#: Known values, in the order in which a host reports them.
_KNOWN = {
    'hw_architecture': ARCHITECTURES,
    'img_hv_type': (
        'baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd openvz '
        'parallels phyp prsm qemu test uml vbox vmware vz xen zvm').split(),
    'hw_vm_mode': ['hvm', 'xen', 'uml', 'exe'],
}

#: Aliases of the values.
_ALIASES = {
    'hw_architecture': ARCHITECTURE_ALIASES,
    'img_hv_type': {'xapi': 'xen'},
    'hw_vm_mode': {'pv': 'xen', 'hv': 'hvm', 'baremetal': 'hvm'}}

_COMPARES = {'<': operator.lt, '<=': operator.le, '==': operator.eq,
             '>': operator.gt, '>=': operator.ge, '!=': operator.ne}

_PREDICATE = re.compile(r'\s*([<>]=?|[!=]=)\s*(\S+)\s*')

_LENGTH_MAX, _BITS_MAX = 255, 1024


def kind(name: str, value: Any) -> str:
    """Return the value of a property in the spelling of hosts."""
    found = _spelled(name, value) if isinstance(value, str) else None
    if found not in _KNOWN[name]:
        _refuse(name, f'one of {", ".join(_KNOWN[name])}')
    return found


def supported(values: Iterable[str]) -> frozenset[str]:
    """Return the supported values, from one of a host's tuples."""
    return frozenset(map(_spelled, _KNOWN, values))


def versions(text: Any) -> Callable[[int], bool]:
    """Return a test of versions such as 1002003 (1.2.3) for ``>=1.2,<8``."""
    bounds = []
    if isinstance(text, str) and len(text) <= _LENGTH_MAX:
        bounds = list(map(_PREDICATE.fullmatch, text.split(',')))
    if not bounds or not all(bounds):
        _refuse('img_hv_requested_version', 'bounds such as >=6.0,<8')
    try:
        checks = [(_COMPARES[bound[1]], packaging.Version(bound[2]))
                  for bound in bounds if bound]
    except packaging.InvalidVersion:
        _refuse('img_hv_requested_version', 'versions such as 6.0')
    return lambda number: number <= 0 or all(
        compares(_version(number), bound) for compares, bound in checks)


def bits(value: Any) -> int:
    """Return the required number of address bits; 0 for no requirement."""
    text = str(value) if isinstance(value, (int, str)) else ''
    good = re.fullmatch('[0-9]{1,4}', text) and int(text) <= _BITS_MAX
    if value is not None and not good:
        _refuse('hw_maxphysaddr_bits', f'a whole number up to {_BITS_MAX}')
    return int(text) if value is not None else 0


def _version(number: int) -> packaging.Version:
    text = ''
    while number:
        number, part = divmod(number, 1000)
        text = f'{part}.{text}'
    return packaging.Version(text.rstrip('.'))


def _spelled(name: str, value: str) -> str:
    return _ALIASES[name].get(value.lower(), value.lower())


def _refuse(name: str, expected: str) -> NoReturn:
    raise exception.InvalidField(
        where='request', field=f'image.properties.{name}', expected=expected)
