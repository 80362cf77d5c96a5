# SPDX-License-Identifier: Apache-2.0

from cellsched.api import authorization
from cellsched import context
from tests.unit import base


class TestLocalOperator(base.TestCase):

    def test_foreign_project_is_authorized(self):
        user = context.member('user', 'mine')

        self.assertIs(user, authorization.LocalOperator().authorize(
            user, 'cellsched:hosts:drain', 'theirs'))
