# SPDX-License-Identifier: Apache-2.0
"""Invariants of all servers at all times, checked and repaired.

``facts`` reads what is known of servers everywhere, and ``sizes`` what was
asked for; ``fates``, ``claim_holders``, ``tasks`` and ``reasons`` judge it,
``hosts`` what is mapped, ``capacity`` the claim store's figures and
``providers`` who they are of; ``checks`` goes through a whole deployment,
``repairs`` and ``rows`` mend what can be, and ``claims`` releases leaked
claims while a conductor runs. To add a finding, add its kind to ``findings``
and to the page on the audit.
"""
