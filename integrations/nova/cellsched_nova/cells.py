# SPDX-License-Identifier: Apache-2.0
"""The hosts and instances of Nova's cells, as their databases say."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any

from nova import context as nova_context
from nova.db.main import api as db
from nova.db.main import models
from nova import objects as nova_objects
from oslo_utils import timeutils

#: Times in databases are whole seconds: what was written shortly before it
#: was read may be written again without another time.
_UNSURE = datetime.timedelta(seconds=2)

#: By uuid, when each compute node was written; None where that may be written
#: again.
Marks = Mapping[str, datetime.datetime | None]


@dataclasses.dataclass(frozen=True)
class CellChanges:
    """The changes of a cell since it was read before.

    :param marks: of its compute nodes
    :param nodes: the compute nodes that changed
    :param services: the compute services, by host
    """

    marks: Marks
    nodes: Iterable[Any]
    services: Mapping[str, Any]


def changes(
    context: Any, cells: Sequence[Any], before: Mapping[str, Marks]
) -> Iterator[tuple[str, CellChanges | None]]:
    """Yield the uuid of each cell, and what changed in it.

    Blocks: all are asked at once. It is None for a cell that does not answer.

    :param cells: Nova's mappings
    :param before: by uuid of a cell, the marks of what is known of it
    """
    def read(aimed: Any) -> CellChanges:
        return _changes(aimed, before.get(aimed.cell_uuid, {}))

    for uuid, found in nova_context.scatter_gather_cells(
            context, cells, nova_context.CELL_TIMEOUT, read).items():
        yield uuid, (None if nova_context.is_cell_failure_sentinel(found)
                     else found)


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of an instance, and whether Nova may change it just now.

    :param host: the name of its host, if it has one
    :param node: the name of its compute node, if it has one
    :param is_changing: whether Nova does something to it
    """

    host: str | None
    node: str | None
    is_changing: bool


def places(
    context: Any, cells: Sequence[Any], instances: Sequence[str]
) -> tuple[dict[str, Place], bool]:
    """Return where instances are, and whether all cells have answered.

    Blocks: all cells are asked at once.
    """
    found: dict[str, Place] = {}
    answers = nova_context.scatter_gather_cells(
        context, cells, nova_context.CELL_TIMEOUT, _places,
        instances).values()
    is_complete = True
    for rows in answers:
        if nova_context.is_cell_failure_sentinel(rows):
            is_complete = False
        else:
            found |= rows
    return found, is_complete


def _changes(context: Any, before: Marks) -> CellChanges:
    """Return what changed in the cell that a context is aimed at."""
    sure = timeutils.utcnow() - _UNSURE
    marks, services = _signs(context)
    marks = {uuid: mark if mark is not None and mark < sure else None
             for uuid, mark in marks.items()}
    changed = [uuid for uuid, mark in marks.items()
               if mark is None or before.get(uuid) != mark]
    nodes = (nova_objects.ComputeNodeList.get_all_by_uuids(context, changed)
             if changed else ())
    return CellChanges(marks, nodes, services)


@db.pick_context_manager_reader
def _signs(context: Any) -> tuple[
        dict[str, datetime.datetime | None], dict[str, Any]]:
    """Return when compute nodes were written, and the compute services."""
    node, service = models.ComputeNode, models.Service
    marks = {uuid: written for uuid, written in context.session.query(
        node.uuid, node.updated_at).filter(node.deleted == 0)}
    services = {each.host: each for each in context.session.query(
        service.host, service.disabled, service.forced_down,
        service.last_seen_up, service.created_at).filter(
            service.deleted == 0, service.binary == 'nova-compute')}
    return marks, services


@db.pick_context_manager_reader
def _places(context: Any, uuids: Sequence[str]) -> dict[str, Place]:
    """Return where instances of a cell are."""
    instance = models.Instance
    return {uuid: Place(host, node, task_state is not None)
            for uuid, host, node, task_state in context.session.query(
                instance.uuid, instance.host, instance.node,
                instance.task_state).filter(
                    instance.deleted == 0, instance.uuid.in_(uuids))}
