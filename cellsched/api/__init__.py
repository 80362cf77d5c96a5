# SPDX-License-Identifier: Apache-2.0
"""The API that a front end calls: servers and flavors.

Each method validates its input before it changes anything, and checks a rule
of the policies.
"""
