# SPDX-License-Identifier: Apache-2.0
"""Creation of the databases' schemas."""

from collections.abc import Iterable

from oslo_config import cfg

from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from cellsched.embedding.parts import ConductorParts


def create_schemas(
    conf: cfg.ConfigOpts, cell_databases: Iterable[str] = ()
) -> None:
    """Create what is missing of schemas, or bring them up to date.

    Those are of the API database, of the claim store, and of cells. What is
    there already stays.

    :param cell_databases: URLs of the databases of cells, cell0's among them
    :raises cellsched.exception.ConfigurationInvalid: names an option that is
        missing or wrong, or a URL is none
    :raises cellsched.exception.DatabaseUnreachable: one does not answer
    """
    parts = ConductorParts(conf)
    try:
        api_schema.SCHEMA.sync(parts.database)
        parts.claims.sync()
        for url in cell_databases:
            cell_schema.SCHEMA.sync(
                parts.databases.get(url, cell_schema.SCHEMA.name))
    finally:
        parts.close()
