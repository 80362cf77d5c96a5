# SPDX-License-Identifier: Apache-2.0
"""The API that a front end calls: servers and flavors.

Everything that a user says is checked here, before anything is changed, and
each call asks the rule that it names whether its user may call it.
"""
