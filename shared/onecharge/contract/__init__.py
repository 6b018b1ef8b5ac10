"""What the services say to each other: the events' envelope and types, states, money, questions."""
