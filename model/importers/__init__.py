"""Readers of other projects' models; each writes a checkpoint of ours."""
