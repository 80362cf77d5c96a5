# SPDX-License-Identifier: Apache-2.0
"""Runs a suite over a plug-in and tells what the suite found."""

import unittest


def failures(suite, kind):
    """Return the names of the tests that a plug-in fails."""
    return set(texts(suite, kind))


def texts(suite, kind):
    """Return the errors of the tests that a plug-in fails, by name."""
    case = type('Case', (suite, unittest.TestCase), {'plugin': kind})
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return {test.id().rpartition('.')[2]: text
            for test, text in [*result.failures, *result.errors]}
