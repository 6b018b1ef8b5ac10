"""place_order: takes an order over HTTP, stores it with one conditional write, and tells where it stands."""
