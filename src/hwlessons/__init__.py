"""Helpers of an executable book on what training does to the hardware."""

__version__ = "0.1.0"
