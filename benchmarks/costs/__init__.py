"""`make costs`: what a million paid orders cost on AWS, beside the naive loop."""
