"""Helpers of an executable book on what training does to the hardware."""

import os

# Read when torch loads: threads that wait must not spin on a core that others need (three times as fast on busy cores)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
