# SPDX-License-Identifier: Apache-2.0
"""Audit: the invariants of all servers, checked and repaired.

* ``findings``: kinds of findings, and repairs.
* ``state``: reads the state of servers in all databases and the claim store.
* ``checks``: a function for each invariant.
* ``references``: checks of hosts, providers, groups, archives and leases.
* ``auditor``: checks a whole deployment, and releases leaked claims while a
  conductor runs.
* ``repairs``: repairs findings.

To add a finding, add its kind to ``findings``, its check to ``checks``, and
describe it in the page on the audit.
"""
