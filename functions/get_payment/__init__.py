"""get_payment: what the customer's page needs to finish a payment. It reads the payment's row, and writes nothing."""
