# SPDX-License-Identifier: Apache-2.0
"""Network plug-ins: what gives servers their networks.

``base`` is the contract; ``noop`` gives none, and ``fake`` records what it
would give. To add one, subclass ``base.NetworkAPI`` and name it in the entry
points of ``cellsched.network``. ``deallocation`` takes networks back.
"""
