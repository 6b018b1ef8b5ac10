"""stripe_eventbridge: takes Stripe's events from EventBridge, instead of webhooks; what follows is the same."""
