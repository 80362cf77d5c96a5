# SPDX-License-Identifier: Apache-2.0
"""Tests of the claim store."""

import unittest

from cellsched.testing.suite import claims
from third_party_store import store


class TestDictClaims(claims.ClaimStoreSuite, unittest.TestCase):

    def make_store(self):
        return store.DictClaims()
