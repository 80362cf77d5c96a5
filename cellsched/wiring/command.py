# SPDX-License-Identifier: Apache-2.0
"""The API as commands use it, and their parts."""

from oslo_config import cfg

from cellsched.api import authorization
from cellsched.db import api as api_schema
from cellsched.parts import cell
from cellsched.wiring.api import API
from cellsched.wiring.api import APIParts


class CommandParts(APIParts, cell.CellParts):
    """The parts of a command; one that sends messages checks them itself."""

    messages = False


def api(conf: cfg.ConfigOpts, parts: CommandParts) -> API:
    """Return the API, of which each facet is made when it is asked for.

    Policies are not asked: who runs a command can read what the services'
    configuration says of the databases.
    """
    api_schema.SCHEMA.check(parts.database)
    return API(parts, authorization.LocalOperator())
