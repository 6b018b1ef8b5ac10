"""Shipped instead of urllib3's own, which reads the version of an HTTP/2 library: that is not shipped."""
