# SPDX-License-Identifier: Apache-2.0
"""No tables: refuses a database that is in use and has no cell0.

What cannot be built has nowhere to go there. An empty database passes, as
cell0 cannot be mapped before there are tables.
"""

from alembic import op
import sqlalchemy as sa

from cellsched import exception

revision = '5a80d7f3c216'
down_revision = '3b7e61c9f0d4'

CELL0 = '00000000-0000-0000-0000-000000000000'
USED = ('cell_mappings', 'instance_mappings', 'build_requests')


def upgrade():
    connection = op.get_bind()
    cells = sa.table('cell_mappings', sa.column('uuid'))
    if _has_rows(connection, sa.select(cells).where(cells.c.uuid == CELL0)):
        return
    if any(_has_rows(connection, sa.select(sa.text('1')).select_from(
            sa.table(name))) for name in USED):
        raise exception.Cell0NotMapped(
            command='cellsched-manage cell_v2 map_cell0')


def _has_rows(connection, query):
    return connection.execute(query.limit(1)).first() is not None
