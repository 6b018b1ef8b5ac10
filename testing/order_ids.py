"""The key of order ids in tests, and the ids that it makes."""

from onecharge.orders.ids import KEY_LENGTH_MIN, OrderIds

KEY = "k" * KEY_LENGTH_MIN
ORDER_IDS = OrderIds(KEY.encode())
