# SPDX-License-Identifier: Apache-2.0
"""Maintenance: the invariants of all servers, deleted rows and upgrades.

* ``findings``: kinds of findings, and repairs.
* ``state``: reads the state of servers in all databases and the claim store.
* ``checks``: a function for each invariant.
* ``references``: checks of hosts, providers, groups, archives and leases.
* ``auditor``: checks a whole deployment, and releases leaked claims while a
  conductor runs.
* ``repairs``: repairs findings.
* ``archive``: moves deleted rows to shadow tables, and removes them there.
* ``upgrade``: checks a deployment before and after an upgrade.

To add a finding, add its kind to ``findings``, its check to ``checks``, and
describe it in the page on the audit.
"""
