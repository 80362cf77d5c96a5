# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose capabilities match the flavor's extra specs."""

import operator

import numpy as np

from cellsched import exception
from cellsched.filters import attributes
from cellsched.filters import base
from cellsched.filters import extra_specs_ops
from cellsched.hosts import view
from cellsched import objects

#: The operators for numeric columns.
_NUMBERS = {'=': operator.ge, '==': operator.eq, '!=': operator.ne,
            '>=': operator.ge, '<=': operator.le}

_SCOPE = 'capabilities'
_BITS = 'hw:maxphysaddr_bits'


class ComputeCapabilitiesFilter(base.Filter):
    """Reject a host whose capabilities do not match the extra specs.

    ``capabilities:free_ram_mb = >= 4096`` compares a column of the host
    table, by Nova's name for it, or else one of the host's statistics.
    Further parts are JSON keys: ``capabilities:cpu_info:vendor = Intel``. A
    host without the value is rejected, or kept if the spec has no scope.
    ``hw:maxphysaddr_bits`` is compared with ``cpu_info:maxphysaddr:bits``.

    The operators are ``=``, ``==``, ``!=``, ``>=``, ``<=`` for numbers, and
    ``s==``, ``s!=``, ``s<``, ``s<=``, ``s>``, ``s>=``, ``<in>``, ``<all-in>``
    and ``<or>`` for text. Without an operator, the texts must be equal.
    """

    reason = "lacks what the flavor's extra specs ask for"
    reads = frozenset(f'flavor.extra_specs.{name}' for name in (
        'capabilities:*', _BITS, 'unscoped'))
    run_filter_once_per_request = True

    def applies(self, request: objects.RequestSpec) -> bool:
        return any(_path(key) for key in _extra_specs(request))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        mask = np.ones(len(hosts), dtype=bool)
        for key, requirement in _extra_specs(request).items():
            path = _path(key)
            if not path:
                continue
            field = f'extra_specs.{key:.80}'
            is_required = ':' in key
            if is_required and any(part.startswith('_') for part in path):
                raise exception.InvalidField(
                    where='flavor', field=field,
                    problem='a name begins with _',
                    expected='names that do not begin with _')
            if key == _BITS:
                requirement = f'>= {requirement}'
            meets = extra_specs_ops.matcher(requirement, field)
            # An attribute of the hosts, or else one of their statistics.
            found = (attributes.find(hosts, path)
                     if path[0] not in attributes.OURS else None)
            if found is None:
                found = attributes.Attribute(hosts, 'stats', *path)
            sign, *words = requirement.split() or ['']
            if words and sign in _NUMBERS and found.column.dtype == 'float64':
                mask &= _NUMBERS[sign](found.column, float(words[0]))
            else:
                mask &= found.each(lambda value: (
                    not is_required if value is None else meets(str(value))))
        return mask


def _extra_specs(request: objects.RequestSpec) -> dict[str, str]:
    return request.flavor.get('extra_specs') or {}


def _path(key: str) -> tuple[str, ...]:
    """Return the path that an extra spec names; empty if it names none."""
    scope, *path = key.split(':')
    if key == _BITS:
        return 'cpu_info', 'maxphysaddr', 'bits'
    if not path:
        return (scope,)
    return tuple(path) if scope == _SCOPE else ()
