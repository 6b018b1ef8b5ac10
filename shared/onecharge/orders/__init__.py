"""What the order service's functions share: an order's item, and what may not be in one."""
