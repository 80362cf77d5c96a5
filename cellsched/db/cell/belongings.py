# SPDX-License-Identifier: Apache-2.0
"""Queries for what a server brings along: its tags and block devices."""

from collections.abc import Iterable
import datetime

import sqlalchemy as sa

from cellsched.db.cell import block_devices
from cellsched.db.cell import instances
from cellsched.db.cell import tags
from cellsched import objects


def add(
    connection: sa.Connection, requests: Iterable[objects.BuildRequest],
    now: datetime.datetime,
) -> None:
    """Add what goes with rows that are new, as their requests have it."""
    requests = list(requests)
    tags.create_all(connection, {
        request.instance_uuid: request.tag_names for request in requests})
    block_devices.create_all(connection, [
        device for request in requests
        for device in request.get('block_device_mappings') or ()], now)


def correct(
    connection: sa.Connection, request: objects.BuildRequest,
    now: datetime.datetime,
) -> None:
    """Bring a row up to what its user has changed in the request since."""
    uuid = request.instance_uuid
    if instances.update(
            connection, uuid,
            {'display_name': request.instance.get('display_name')}, now):
        replace_tags(connection, uuid, request.tag_names)


def replace_tags(
    connection: sa.Connection, uuid: str, names: Iterable[str]
) -> None:
    """Give a server these tags in place of those that it has."""
    tags.delete(connection, [uuid])
    tags.create_all(connection, {uuid: names})
