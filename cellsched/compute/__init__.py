# SPDX-License-Identifier: Apache-2.0
"""The compute agent of one host.

``agent`` builds and removes servers with a virtualisation driver, and
``progress`` says in their rows how far they are; ``tracker`` reports what the
host has, to its cell and to the claim store.
"""
