# SPDX-License-Identifier: Apache-2.0
"""Queries for what was asked for each instance."""

from oslo_db import exception as db_exc
from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.api import request_specs
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples


class TestRequestSpecs(base.TestCase):

    def create(self, *uuids):
        specs = [objects.RequestSpec(
            instance_uuid=uuid, flavor=samples.flavor(),
            scheduler_hints={'group': ['g']}).obj_to_primitive()
            for uuid in uuids]
        self.write(request_specs.create, specs, samples.NOW)

    def test_spec_is_kept_as_it_is_sent(self):
        uuids = samples.uuids(2)
        self.create(*uuids)

        rows = self.read(lambda connection: connection.execute(
            sa.select(models.request_specs)
            .order_by(models.request_specs.c.id)).all())

        self.assertEqual(uuids, [row.instance_uuid for row in rows])
        spec = objects.RequestSpec.obj_from_primitive(
            jsonutils.loads(rows[1].spec))
        self.assertEqual(uuids[1], spec.instance_uuid)
        self.assertEqual(['g'], spec.hint('group'))

    def test_instance_has_one_spec(self):
        uuids = samples.uuids(1)
        self.create(*uuids)

        self.assertRaises(db_exc.DBDuplicateEntry, self.create, *uuids)
