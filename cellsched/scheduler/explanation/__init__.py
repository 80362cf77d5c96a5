# SPDX-License-Identifier: Apache-2.0
"""Explanation of decisions: records, diagnoses and their storage."""
