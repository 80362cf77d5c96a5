# SPDX-License-Identifier: Apache-2.0
"""What must hold of all servers at all times, checked and mended.

``facts`` reads what is known of servers everywhere; ``fates``, ``holding`` and
``reasons`` judge it, ``hosts`` what is mapped and ``capacity`` the claim
store's figures; ``checks`` goes through a whole deployment, ``repairs`` mends
what can be, and ``claims`` releases leaked claims while a conductor runs.
"""
