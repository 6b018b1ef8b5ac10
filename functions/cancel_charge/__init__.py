"""cancel_charge: the payment service's answer to the question whether an order can still be canceled."""
