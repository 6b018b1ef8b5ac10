"""What proves the house: specification, simulation, survival, speed and costs. The house does not know it."""
