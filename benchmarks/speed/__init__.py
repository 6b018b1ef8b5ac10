"""How fast, how cheap: the handler of charge_order beside the designs that people copy, on the same servers."""
