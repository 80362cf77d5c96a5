# SPDX-License-Identifier: Apache-2.0
"""The compute agent of a host.

``agent`` builds and removes servers with a virtualisation driver, ``moves``
moves them, and ``progress`` records builds in their rows. ``tracker`` reports
the resources of the host to its cell and to the claim store.
"""
