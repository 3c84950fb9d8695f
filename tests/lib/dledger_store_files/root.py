"""What only root can do in a test."""

import os

import pytest

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems: needs root")
