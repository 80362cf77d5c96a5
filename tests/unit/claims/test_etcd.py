# SPDX-License-Identifier: Apache-2.0
"""Claims in a model of etcd."""

from cellsched import clock
from cellsched.testing.suite import claims as suite
from tests.unit import base
from tests.unit.claims.etcd import base as on_model
from tests.unit.claims import model


class TestEtcdClaims(
        on_model.OnModel, suite.ClaimStoreSuite, base.TestCase):

    def make_store(self):
        # Racing threads are to let each other go on.
        return super().make_store(clock=clock.Clock())


class TestEtcdModel(on_model.OnModel, model.ModelTests, base.TestCase):
    pass
