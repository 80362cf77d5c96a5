# SPDX-License-Identifier: Apache-2.0
"""The compute agent of one host.

``agent`` builds and removes servers with a virtualisation driver; ``tracker``
reports what the host has, to its cell and to the claim store.
"""
