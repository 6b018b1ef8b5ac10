"""The contract between the order service and the payment service: events, states, money, refunds."""
