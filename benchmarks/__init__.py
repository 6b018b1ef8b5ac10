"""What can be measured about onecharge, each with the command that measures it."""
