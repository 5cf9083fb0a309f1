"""Offline training: imported by nothing that serves."""
