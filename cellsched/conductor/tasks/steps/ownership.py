# SPDX-License-Identifier: Apache-2.0
"""The lease of a build request, renewed or lost while a step is done."""

from collections.abc import Sequence
from typing import Any

from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import Outcome
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched import objects


def renew(
    connection: Any, builds: Sequence[Build], until: float
) -> set[Build]:
    """Lease requests for longer; return the builds that are ours still.

    :param until: in seconds since the epoch
    """
    owners = {build.uuid: build.owner for build in builds}
    mine = build_requests.renew(connection, owners, until)
    return {build for build in builds
            if build.uuid in mine and owners[build.uuid] == build.owner}


def end_lost(connection: Any, builds: Sequence[Build]) -> None:
    """End builds that somebody else settled, by asking who it was."""
    uuids = [build.uuid for build in builds]
    mappings = instance_mappings.get_many(connection, uuids)
    requested = build_requests.present(connection, uuids)
    for build in builds:
        # What is elsewhere was asked for before, and nothing follows on that.
        if build.outcome is not Outcome.ELSEWHERE:
            build.end(_find_outcome(
                build, mappings.get(build.uuid), build.uuid in requested))


def _find_outcome(
    build: Build, mapping: objects.InstanceMapping | None,
    requested: bool,
) -> Outcome:
    if mapping is None or mapping.queued_for_delete:
        return Outcome.DELETED
    decided = mapping.cell_mapping
    # While there is a request it may be decided anew.
    if build.cell and decided and decided.id != build.cell.id and (
            not requested):
        return Outcome.ELSEWHERE
    return Outcome.FINISHED
