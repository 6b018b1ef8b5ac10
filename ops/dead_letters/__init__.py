"""The messages in the DLQs: what they are, the state of their orders, and what to do with them.

queues    which DLQs a stack has, where each message of them belongs, and reading without harm
letter    one message of a DLQ
advice    send it back, discard it or leave it: every decision, pure
consult   reads the order, its payment and Stripe for a message, and asks for advice
redrive   sends back; says why that can charge nothing twice
discard   records, then deletes
"""
