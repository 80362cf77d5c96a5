# SPDX-License-Identifier: Apache-2.0
"""Rules of oslo.policy: the users that may call each method of the API.

An operator overrides the defaults in ``policy.yaml``.
"""
