"""payment_questions: answers what the order service cannot wait for events about: a cancellation, a client secret."""
