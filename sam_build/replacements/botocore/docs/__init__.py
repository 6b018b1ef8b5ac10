"""Shipped instead of botocore's own: what writes its reference documentation is left out (sam_build/build.py)."""
