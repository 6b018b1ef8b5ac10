"""Writes a project of one's own: the core of this one, the chosen optional parts, another name."""
