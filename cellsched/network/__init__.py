# SPDX-License-Identifier: Apache-2.0
"""Network plug-ins: networks of servers.

``base`` is the contract, ``noop`` gives no networks, and ``fake`` only records
calls. To add a plug-in, subclass ``base.NetworkAPI`` and name it in the entry
points of ``cellsched.network``. ``deallocation`` deallocates networks of ended
servers.
"""
