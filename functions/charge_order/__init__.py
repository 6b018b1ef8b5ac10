"""charge_order: claims an order, confirms its one PaymentIntent at Stripe, finalizes the row."""
