# SPDX-License-Identifier: Apache-2.0
"""Rules of oslo.policy: who may call what of the API, unless a file says else.

A rule has Nova's name where Nova has the call, so that an operator's
``policy.yaml`` goes on to hold; others begin with ``cellsched``. A module has
the rules of one part of the API.
"""
