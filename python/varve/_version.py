# SPDX-License-Identifier: Apache-2.0
"""One place for the version, which is that of the library."""

__version__ = "0.2.0"
