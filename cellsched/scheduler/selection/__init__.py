# SPDX-License-Identifier: Apache-2.0
"""Selection: choose hosts for instances and claim their resources."""
