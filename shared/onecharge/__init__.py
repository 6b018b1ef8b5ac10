"""What two or more functions of onecharge share: the contract of the events, money, and how to log."""
