"""Who survives what: onecharge and the designs that are copied most, under the same faults, in one simulator."""
