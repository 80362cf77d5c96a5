# SPDX-License-Identifier: Apache-2.0
"""Compliance suites, which every plug-in of a kind must pass.

A module for each kind of plug-in. A suite is a mixin: a test class inherits
it before a test case, names the plug-in, and has its tests.
"""
