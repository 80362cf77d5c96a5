# SPDX-License-Identifier: Apache-2.0
"""Explanation: what a decision says of itself, kept and shown."""
