"""`make load`: orders at a constant rate against the local stack, and how long each one takes."""
