# SPDX-License-Identifier: Apache-2.0
"""Demands of requests that nothing reads.

A server that runs where it must not is worse than one that does not run: what
a request asks for is given, or refused by its name.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools

from oslo_log import log

from cellsched.context import RequestContext
from cellsched import exception
from cellsched import objects
from cellsched.scheduler import demand_catalogue as catalogue

LOG = log.getLogger(__name__)

#: Demands that one refusal names, and characters of one name.
_NAMED_MAX, _NAME_MAX = 10, 60

#: Names of extra specs and properties whose demand is remembered.
_NAMES_MAX = 4096

#: Demands of one name each, by it, and those of many names, in this order.
_EXACT = {each.name: each for each in catalogue.DEMANDS if not each.is_open}
_OPEN = tuple(each for each in catalogue.DEMANDS if each.is_open)

_PREFIXES = (catalogue.EXTRA_SPEC, catalogue.PROPERTY)

_INDIFFERENT = frozenset[str]().union(*catalogue.NO_DEMANDS.values())


class Unread:
    """Finds what requests ask for and nothing reads.

    :param reads: what is read, as stages declare it; see
        :attr:`cellsched.filters.base.Filter.reads`
    """

    def __init__(self, reads: Iterable[str]) -> None:
        reads = frozenset(reads)
        self._reads = reads
        self._prefixes = tuple(
            name[:-1] for name in reads if name.endswith('*'))
        #: All that is not read.
        self.demands = tuple(
            each for each in catalogue.DEMANDS
            if not self._is_read(each.name, each))
        fields: dict[str, list[tuple[str, catalogue.Demand]]] = {}
        for each in self.demands:
            if not each.name.startswith(_PREFIXES):
                field, _, inner = each.name.partition('.')
                fields.setdefault(field, []).append((inner, each))
        self._fields = fields
        # Flavors and properties are few, and come with every request.
        self._unread = functools.lru_cache(_NAMES_MAX)(self._find)

    def names(self, request: objects.RequestSpec) -> list[str]:
        """Return each unread demand in words, with its name; mostly none."""
        return list(self._names(request))

    def _names(self, request: objects.RequestSpec) -> Iterator[str]:
        specs = request.flavor.get('extra_specs')
        for name, value in specs.items() if specs else ():
            demand = self._unread(catalogue.EXTRA_SPEC, name)
            if demand is not None and demand.when.holds(value, request):
                yield _said('flavor extra spec', name, demand)
        image = request.get('image')
        said = image.get('properties') if image is not None else None
        for name, value in said.items() if said is not None else ():
            demand = self._unread(catalogue.PROPERTY, name)
            if demand is not None and demand.when.holds(value, request):
                yield _said('image property', name, demand)
        values = request.values_of(self._fields)
        for field, value in values.items():
            demands = self._fields[field]
            for inner, demand in demands if value is not None else ():
                inside = catalogue.part(value, inner) if inner else value
                if demand.when.holds(inside, request):
                    yield _said('request field', demand.name, demand)

    def _find(self, kind: str, name: str) -> catalogue.Demand | None:
        """Return the demand of a name, if nothing reads it."""
        full = kind + name
        demand = find(full)
        if demand is None or self._is_read(full, demand):
            return None
        return demand

    def _is_read(self, name: str, demand: catalogue.Demand) -> bool:
        return (name in self._reads or demand.name in self._reads
                or name.startswith(self._prefixes))


class Rule:
    """Refuses requests that ask for what nothing reads, or logs them.

    :param reads: see :class:`Unread`
    :param ignored: whether such requests are placed all the same
    """

    def __init__(self, reads: Iterable[str], ignored: bool = False) -> None:
        self._unread = Unread(reads)
        self._ignored = ignored

    def refusal(
        self, request: objects.RequestSpec, context: RequestContext
    ) -> exception.NoValidHost | None:
        """Return the error that ends a request, if it is refused."""
        names = self._unread.names(request)
        if not names:
            return None
        reason = _reason(names)
        if self._ignored:
            LOG.warning('Request %s is placed all the same: %s',
                        context.request_id, reason, context=context)
            return None
        LOG.info('Refused: %s', reason, context=context)
        return exception.NoValidHost(reason=reason, rejections=[], placed=0)


def find(name: str) -> catalogue.Demand | None:
    """Return the demand that has a name, such as ``numa_topology``.

    :param name: with its prefix, where it is an extra spec or a property
    """
    if name in _INDIFFERENT:
        return None
    found = _EXACT.get(name)
    return found or next(
        (each for each in _OPEN if each.covers(name)), None)


def is_known(reads: str) -> bool:
    """Return whether what a stage declares to read is a name of any kind."""
    prefix = reads.removesuffix('*')
    return (find(prefix) is not None or prefix in _INDIFFERENT
            or prefix != reads and any(
                each.name.startswith(prefix) for each in catalogue.DEMANDS))


def _reason(names: Sequence[str]) -> str:
    """Return one sentence for users."""
    named = ', '.join(names[:_NAMED_MAX])
    if len(names) > _NAMED_MAX:
        named += f' and {len(names) - _NAMED_MAX} more'
    return f'No enabled stage reads what is asked for: {named}.'


def _said(kind: str, name: str, demand: catalogue.Demand) -> str:
    # Users write names of properties, and everybody reads the log.
    shown = ascii(name[:_NAME_MAX])[1:-1]
    if len(name) > _NAME_MAX:
        shown += '…'
    return f'{kind} {shown} ({demand.what})'
